/* Which scores are shown first: those that people ask for, then those that most checkpoints have. */

const PREFERRED = ["mig", "dci", "sap", "factor_vae", "modularity", "beta_vae", "irs"];
const placeOf = (name) => (PREFERRED.indexOf(name.split("@")[0]) + PREFERRED.length + 1) % (PREFERRED.length + 1);

export const rankIn = (counts) => (a, b) =>
  placeOf(a) - placeOf(b) || counts.get(b) - counts.get(a) || a.localeCompare(b);
