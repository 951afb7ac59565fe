import { el, note, table } from "./dom.js";

/* Markdown of strangers: headings, lists, tables, code, bold, links to the web, pictures of the repository.
   Everything is read once from its beginning to its end, and no more than is stated here. */

const CARD_LIMIT = 100_000;
const MAX_BLOCKS = 2000;
const MAX_CELLS = 5000;
const MAX_COLUMNS = 50;

const isItem = (line) => /^\s*([-*+]|\d{1,9}[.)])\s/.test(line);
const isTable = (line) => line.trimStart().startsWith("|");
const isHeading = (line) => /^#{1,6}\s/.test(line);
const isFence = (line) => line.startsWith("```");
const isRule = (line) => /^\s*([-*_])\1\1+\s*$/.test(line);
const isProse = (line) => line.trim() && !isItem(line) && !isTable(line) && !isHeading(line) && !isFence(line);

export function markdown(text, pictures = []) {
  const reader = { lines: text.slice(0, CARD_LIMIT).split(/\r?\n/), place: 0 };
  const blocks = [];
  while (reader.place < reader.lines.length && blocks.length < MAX_BLOCKS) {
    const block = takeBlock(reader, (part) => inlineMarks(part, pictures));
    if (block) blocks.push(block);
  }
  const isCut = text.length > CARD_LIMIT || reader.place < reader.lines.length;
  if (isCut) blocks.push(note("Only the beginning of the card is shown."));
  return blocks.length ? blocks : [note("No card.")];
}

function takeWhile(reader, wanted) {
  const start = reader.place;
  while (reader.place < reader.lines.length && wanted(reader.lines[reader.place])) reader.place++;
  return reader.lines.slice(start, reader.place);
}

function takeBlock(reader, inside) {
  const line = reader.lines[reader.place];
  if (!line.trim()) {
    takeWhile(reader, (one) => !one.trim());
    return null;
  }
  if (isFence(line)) {
    reader.place++;
    const code = takeWhile(reader, (one) => !isFence(one));
    reader.place++;
    return el("pre", {}, el("code", {}, code.join("\n")));
  }
  if (isHeading(line)) {
    reader.place++;
    const marks = line.match(/^#+/)[0].length;
    return el(`h${Math.min(marks + 3, 6)}`, {}, inside(line.slice(marks).trim()));
  }
  if (isTable(line)) return tableOf(takeWhile(reader, isTable), inside);
  if (isRule(line)) {
    reader.place++;
    return el("hr");
  }
  if (isItem(line)) {
    const items = takeWhile(reader, isItem).slice(0, MAX_BLOCKS);
    const entries = items.map((one) => el("li", {}, inside(one.trim().replace(/^\S+\s+/, ""))));
    return el(/^\s*\d/.test(line) ? "ol" : "ul", {}, entries);
  }
  const prose = takeWhile(reader, isProse);
  if (!prose.length) reader.place++;
  return el("p", {}, inside(prose.join(" ") || line));
}

function tableOf(lines, inside) {
  const split = (line) => line.trim().replace(/^\||\|$/g, "").split("|", MAX_COLUMNS).map((cell) => cell.trim());
  const rows = [];
  let count = 0;
  for (const line of lines) {
    const row = split(line);
    count += row.length;
    if (count > MAX_CELLS) break;
    rows.push(row);
  }
  const isLine = (row) => row.every((cell) => /^:?-+:?$/.test(cell));
  const hasHead = rows.length > 1 && isLine(rows[1]);
  const body = rows.filter((row) => !isLine(row)).map((row) => row.map(inside));
  return hasHead ? table(body[0] ?? [], body.slice(1)) : table([], body);
}

function inlineMarks(text, pictures) {
  const nodes = [];
  const mark = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|(!?)\[([^\][]{0,500})\]\(([^()\s]{0,2000})\)/g;
  let end = 0;
  for (let found = mark.exec(text); found && nodes.length < MAX_CELLS; found = mark.exec(text)) {
    nodes.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    if (found[1] !== undefined) nodes.push(el("code", {}, found[1]));
    else if (found[2] !== undefined) nodes.push(el("strong", {}, found[2]));
    else if (found[3] !== undefined) nodes.push(el("em", {}, found[3]));
    else nodes.push(found[4] ? cardPicture(found[5], found[6], pictures) : cardLink(found[5], found[6]));
  }
  return [...nodes, text.slice(end)];
}

function cardLink(text, target) {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return text;
  return el("a", { href: target, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
}

function cardPicture(text, target, pictures) {
  const known = pictures.find((picture) => picture.name === target && picture.url);
  if (!known) return el("span", { class: "facts" }, `[picture: ${text || target}]`);
  return el("img", { src: known.url, alt: text, loading: "lazy" });
}
