// Part of the test in a browser: draws everything, uses every switch, and tells what there is.
"use strict";
addEventListener("load", async () => {
  const found = window.probe;
  try {
    for (const details of document.querySelectorAll("main details")) details.open = true;
    const isLight = () => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]) > 128;
    dispatchEvent(new Event("beforeprint"));
    found.paper_is_light = isLight();
    dispatchEvent(new Event("afterprint"));
    const figures = [...document.querySelectorAll("figure.plot")];
    const marks = (figure) => figure.querySelectorAll(".canvas path, .canvas circle, .canvas line").length;
    const html = (figure) => figure.querySelector(".canvas").innerHTML;
    found.figures = figures.map((figure) => {
      const before = new Map(figures.map((it) => [it, html(it)]));
      const count = marks(figure);
      const entry = figure.querySelector(".legend button");
      entry?.click();
      const hides = !entry || html(figure) !== before.get(figure);
      entry?.click();
      for (const button of figure.querySelectorAll(".tools button[aria-pressed]")) {
        button.click();
        button.click();
      }
      const others = figures.filter((it) => it !== figure && html(it) !== before.get(it)).length;
      const names = (svg) => [...svg.querySelectorAll("[aria-label='x-axis tick label'] text")];
      const ticks = [...figure.querySelectorAll(".panel svg")].map((svg) => names(svg).map((it) => it.textContent));
      return { id: figure.querySelector("h4").id, marks: count, hides, others_changed: others, ticks };
    });
    found.forests = document.querySelectorAll(".forest svg").length;
    found.orders = document.querySelectorAll(".order svg").length;
    const svg = document.querySelector("figure.plot .panel svg");
    if (svg) {
      svg.focus();
      svg.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
      found.read_aloud = svg.closest("figure").querySelector(".readout").textContent.length > 5;
      const saved = [];
      drover.save = (blob) => saved.push(blob);
      const button = (name) =>
        [...document.querySelectorAll("figure.plot .tools button")].find((it) => it.textContent === name);
      button("SVG").click();
      button("CSV").click();
      document.querySelector("button[data-download]")?.click();
      const texts = await Promise.all(saved.map((blob) => blob.text()));
      const drawing = new DOMParser().parseFromString(texts[0], "image/svg+xml");
      if (drawing.querySelector("parsererror")) found.errors.push("the SVG is not XML");
      found.csv_lines = Math.min(...texts.slice(1).map((text) => text.split("\n").length));
    }
    found.scroll_width = document.documentElement.scrollWidth;
    const right = (node) => node.getBoundingClientRect().right;
    const wide = [...document.querySelectorAll("main *")].filter(
      (it) => !it.closest(".scroll") && right(it) > innerWidth + 1,
    );
    found.widest = wide
      .slice(0, 5)
      .map((it) => `${it.tagName}.${it.className?.baseVal ?? it.className} ${right(it)}`)
      .join("; ");
    found.is_dark = !isLight();
  } catch (error) {
    found.errors.push(String(error.stack ?? error));
  }
  parent.postMessage(JSON.stringify(found), "*");
});
