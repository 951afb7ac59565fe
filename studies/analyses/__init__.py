"""The analyses of the disentanglement chapters, each a pure function of a table of results."""
