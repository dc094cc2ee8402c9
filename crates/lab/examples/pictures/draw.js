// Draws a figure of a report by itself, as light as paper: `want` names it by its anchor on the page, and says
// which subjects and panels are shown, and how.
"use strict";
const want = arguments[0];
document.documentElement.dataset.paper = "";
// Panels are as wide as so many letters: with smaller ones, two stand side by side.
document.documentElement.style.fontSize = want.columns > 1 ? "14px" : "16px";
const data = JSON.parse(document.getElementById("report-data").textContent);
const { Figure, element } = drover.figures;
const all = data.experiments.flatMap((experiment) =>
  experiment.figures.map((figure) => ({ experiment, figure })),
);
const found = all.find(({ figure }) => figure.anchor === want.figure);
if (!found) throw new Error(`the report has no figure ${want.figure}`);
const { experiment, figure } = found;
const isShown = (panel) => !want.panels || want.panels.includes(panel);
const kept = figure.cells.map((_, at) => at).filter((at) => isShown(figure.panels[at]));
const known = new Set([...figure.panels, ...figure.published.map((it) => it.panel)]);
for (const panel of want.panels ?? [])
  if (!known.has(panel)) throw new Error(`${want.figure} has no panel ${panel}, but ${[...known].join("; ")}`);
const part = {
  ...figure,
  cells: kept.map((at) => figure.cells[at]),
  panels: kept.map((at) => figure.panels[at]),
  published: figure.published.filter((it) => isShown(it.panel)),
};
// A panel alone needs no title, unless it says what the figure's title does not.
const node = element(
  "figure",
  { class: "plot" },
  element("div", { class: "tools" }),
  element("div", { class: "canvas" }),
);
node.style.width = `${want.width}px`;
document.querySelector("main").append(node);
const drawing = new Figure(node, experiment, part);
for (const name of want.subjects ?? [])
  if (!drawing.names.includes(name)) throw new Error(`${want.figure} has no subject ${name}`);
for (const name of drawing.names) {
  if (want.subjects && !want.subjects.includes(name)) drawing.hidden.add(name);
}
if (want.split !== undefined) drawing.isSplit = want.split && drawing.isLines;
else if (drawing.names.length - drawing.hidden.size <= 7) drawing.isSplit = false;
if (want.log !== undefined) drawing.yLog = want.log && drawing.canLog;
if (want.published !== undefined) drawing.showsPublished = want.published;
drawing.draw();
const text = drawing.svg(want.width + 24);
node.remove();
return text;
