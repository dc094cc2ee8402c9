// The figures of the experiments: from the embedded data to panels, with switches, legend, keyboard and
// downloads, each within its own figure only.
"use strict";
drover.figures = (() => {
  const { look, domain, words, lines, rows, number, css } = drover;
  /** More lines than this in a panel get a panel each, with the others behind in grey. */
  const MOST_LINES = 7;

  const element = (name, attributes = {}, ...children) => {
    const it = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) it.addEventListener(key.slice(2), value);
      else if (value !== undefined) it.setAttribute(key, value);
    }
    it.append(...children);
    return it;
  };

  /** A drawing whose coordinates have two decimals, which is all that can be seen. */
  function shorten(svg) {
    const names = ["d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "transform", "width", "height"];
    const short = (it) => String(Number(Number(it).toFixed(2)));
    for (const node of svg.querySelectorAll("*")) {
      for (const name of names.filter((it) => node.hasAttribute(it)))
        node.setAttribute(name, node.getAttribute(name).replace(/-?\d+\.\d{3,}/g, short));
    }
    return svg;
  }

  /** The points of a figure: medians, raw runs and published values by panel and subject. */
  function points(experiment, figure) {
    const { samples } = experiment;
    const column = samples.values[figure.metric] ?? [];
    const isVoid = new Set(samples.left_out[figure.metric] ?? []);
    const place = new Map(figure.cells.map((cell, at) => [cell, figure.panels[at]]));
    const x = (cell) => (figure.x === null ? null : experiment.cells[cell].levels[figure.x]);
    const all = [];
    for (const [cell, panel] of place) {
      const { subject, estimates, place: levels, marks, runs } = experiment.cells[cell];
      const marked = Object.entries(marks)
        .map(([mark, count]) => `${drover.mark(mark)} ${count} of ${runs}`)
        .join(", ");
      const estimate = estimates[figure.metric];
      if (estimate)
        all.push({ kind: "median", subject, panel, x: x(cell), place: levels, marks: marked, ...estimate });
    }
    column.forEach((value, run) => {
      const cell = samples.cell[run];
      if (value === null || !place.has(cell) || run in samples.failures) return;
      // What medians and comparisons leave out is shown as such.
      const kind = isVoid.has(run) ? "void" : "raw";
      all.push({ kind, subject: experiment.cells[cell].subject, panel: place.get(cell), x: x(cell), value });
    });
    for (const it of figure.published)
      all.push({ kind: "published", published: true, place: it.panel, ...it });
    return all;
  }

  class Figure {
    constructor(node, experiment, figure) {
      Object.assign(this, { node, experiment, figure, hidden: new Set() });
      this.metric = experiment.metrics.find((it) => it.name === figure.metric);
      this.canvas = node.querySelector(".canvas");
      this.points = points(experiment, figure);
      this.isLines =
        figure.x !== null && this.points.every((it) => it.kind === "published" || typeof it.x === "number");
      if (!this.isLines)
        this.points = this.points.map((it) => ({
          ...it,
          panel:
            it.x === null || it.x === undefined
              ? it.panel
              : [it.panel, `${figure.x} ${it.x}`].filter(Boolean).join(", "),
        }));
      const values = this.counting()
        .map((it) => it.value)
        .filter((it) => it > 0);
      const isWide = values.length > 0 && d3.max(values) / d3.min(values) >= 30;
      this.canLog = this.counting().every((it) => it.value > 0);
      this.yLog = this.canLog && (figure.scale === null ? isWide : figure.scale === "log");
      this.canLogX = this.isLines && this.shown().every((it) => it.x > 0);
      this.xLog = this.canLogX && figure.x_log;
      this.hasPublished = figure.published.length > 0;
      this.showsPublished = this.hasPublished;
      // A subject has one look in all figures of its experiment.
      this.known = experiment.subjects
        .map((it) => it.name)
        .concat(experiment.figures.flatMap((it) => it.published.map((point) => point.subject)))
        .filter((name, at, all) => all.indexOf(name) === at);
      this.names = this.known.filter((name) => this.points.some((it) => it.subject === name));
      this.isSplit = this.isLines && this.names.length > MOST_LINES;
      this.tools();
    }

    shown() {
      return this.points.filter(
        (it) => !this.hidden.has(it.subject) && (this.showsPublished !== false || it.kind !== "published"),
      );
    }

    counting() {
      return this.shown().filter((it) => it.kind !== "void");
    }

    toggle(label, key, help) {
      const button = element("button", { type: "button", "aria-pressed": this[key], title: help }, label);
      button.addEventListener("click", () => {
        this[key] = !this[key];
        button.setAttribute("aria-pressed", this[key]);
        this.draw();
      });
      return button;
    }

    tools() {
      const tools = this.node.querySelector(".tools");
      const button = (label, action) => element("button", { type: "button", onclick: action }, label);
      tools.replaceChildren(
        ...(this.canLog
          ? [this.toggle(this.isLines ? "log y" : "log", "yLog", "Logarithmic value axis")]
          : []),
        ...(this.canLogX ? [this.toggle("log x", "xLog", "Logarithmic horizontal axis")] : []),
        ...(this.isLines && this.names.length > 2
          ? [this.toggle("split", "isSplit", "A panel for each subject")]
          : []),
        ...(this.hasPublished
          ? [this.toggle("published", "showsPublished", "The document's own values")]
          : []),
        button("SVG", () => this.save("svg")),
        button("PNG", () => this.save("png")),
        button("CSV", () => this.save("csv")),
      );
      if (this.names.length > 1) tools.after(this.legend());
      this.readout = element("div", { class: "readout", "aria-live": "polite" });
      this.canvas.after(this.readout);
    }

    legend() {
      const entry = (name) => {
        const it = element(
          "button",
          { type: "button", "aria-pressed": true, "data-subject": name },
          this.key(name),
          name,
        );
        it.addEventListener("click", () => {
          if (!this.hidden.delete(name)) this.hidden.add(name);
          it.setAttribute("aria-pressed", !this.hidden.has(name));
          this.draw();
        });
        return it;
      };
      this.legendNode = element("div", { class: "legend" }, ...this.names.map(entry));
      return this.legendNode;
    }

    key(name) {
      const { colour, symbol } = this.look(name);
      return Plot.plot({
        width: 16,
        height: 14,
        margin: 0,
        axis: null,
        x: { domain: [0, 1] },
        y: { domain: [0, 1] },
        style: { background: "transparent" },
        marks: [Plot.dot([0.5], { x: 0.5, y: 0.5, r: 4, symbol, fill: colour, stroke: colour })],
      });
    }

    look(name) {
      return look(this.known.indexOf(name));
    }

    series(panel, names) {
      const own = (name, kind) =>
        this.shown()
          .filter((it) => it.panel === panel && it.subject === name && it.kind === kind)
          .sort((a, b) => a.x - b.x);
      return names
        .filter((name) => !this.hidden.has(name))
        .map((name) => ({
          name,
          look: this.look(name),
          points: own(name, "median"),
          raw: own(name, "raw"),
          void: own(name, "void"),
          published: own(name, "published"),
        }))
        .filter((one) => one.points.length + one.published.length + one.void.length > 0);
    }

    /** The panels that are drawn: a title, the series, and those behind in grey. */
    panels() {
      const named = [...new Set(this.points.map((it) => it.panel))];
      if (!this.isLines) return this.rowPanels(named);
      if (!this.isSplit) {
        return named.map((title) => ({
          title,
          series: this.series(title, this.names).map((one) => ({ ...one, label: one.name })),
        }));
      }
      return named.flatMap((panel) => {
        const all = this.series(panel, this.names);
        const others = (one) => all.filter((other) => other !== one);
        return all.map((one) => ({ title: one.name, group: panel, series: [one], ground: others(one) }));
      });
    }

    rowPanels(named) {
      if (this.names.length > 1 || named.length === 1) {
        return named.map((title) => ({ title, series: this.series(title, this.names) }));
      }
      // One subject only: its rows are the places.
      const series = named.flatMap((panel) =>
        this.series(panel, this.names).map((one) => ({ ...one, name: panel || one.name })),
      );
      return [{ title: "", series }];
    }

    draw() {
      for (const entry of this.legendNode?.children ?? [])
        entry.firstElementChild.replaceWith(this.key(entry.dataset.subject));
      const panels = this.panels().filter((panel) => panel.series.length > 0);
      this.canvas.style.minHeight = "0";
      if (panels.length === 0) {
        this.canvas.replaceChildren(
          element(
            "p",
            { class: "small" },
            "Nothing to draw: no run of this figure has the metric, or every subject is hidden.",
          ),
        );
        this.drawn = [];
        return;
      }
      const shown = this.counting();
      const values = shown.flatMap((it) => [it.value, it.low, it.high]).filter((it) => Number.isFinite(it));
      const grid = element("div", { class: "panels" });
      const wide = panels.length === 1 ? "60rem" : this.isSplit && this.isLines ? "15rem" : "22rem";
      grid.style.setProperty("--panel-width", wide);
      this.canvas.replaceChildren(grid);
      const title = this.metric?.title ?? this.figure.metric;
      const unit = ["", "1"].includes(this.metric?.unit ?? "") ? "" : this.metric.unit;
      this.unit = unit;
      const factor = this.experiment.factors.find((it) => it.name === this.figure.x);
      let group;
      const cells = panels.map((panel) => {
        if (panel.group && panel.group !== group) {
          group = panel.group;
          grid.append(element("p", { class: "group" }, group));
        }
        const title = panel.title ? [element("p", {}, panel.title)] : [];
        return grid.appendChild(element("div", { class: "panel" }, ...title));
      });
      const width = Math.min(760, Math.floor(cells[0].clientWidth) || 320);
      const common = {
        width,
        height: this.isSplit ? 190 : Math.round(Math.max(230, Math.min(360, width * 0.62))),
        unit,
        xLog: this.xLog,
        yLog: this.yLog,
        yDomain: domain(values, this.yLog),
        xDomain: this.isLines ? this.xDomain(shown) : null,
        yLabel: unit ? `${title} [${unit}]` : title,
        xLabel: factor
          ? [factor.title, factor.unit && factor.unit !== factor.title ? `[${factor.unit}]` : ""]
              .filter(Boolean)
              .join(" ")
          : "",
        canLabel: !this.isSplit && this.names.length > 1 && width > 420,
      };
      this.drawn = panels.map((panel, at) => {
        const chart = (this.isLines ? lines : rows)({ ...common, ...panel });
        chart.title = [panel.title, panel.group].filter(Boolean).join(" – ");
        this.walk(chart, `${this.figure.id}: ${title}${panel.title ? `, ${panel.title}` : ""}`);
        cells[at].append(chart.svg);
        return chart;
      });
    }

    xDomain(shown) {
      const levels = shown.map((it) => it.x).filter((it) => Number.isFinite(it));
      const [low, high] = d3.extent(levels);
      if (this.xLog) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
      const room = (high - low || high || 1) * 0.04;
      return [Math.min(low - room, low >= 0 && low < (high - low) * 0.3 ? 0 : low - room), high + room];
    }

    /** Arrow keys go from point to point; the chart shows what pointing at it shows. */
    walk(chart, label) {
      const { svg } = chart;
      let at = -1;
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", `${label}. Arrow keys read the points.`);
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (step === undefined || chart.points.length === 0) return;
        event.preventDefault();
        at = (at + step + chart.points.length) % chart.points.length;
        const point = chart.points[at];
        const box = svg.getBoundingClientRect();
        const scale = box.width / svg.viewBox.baseVal.width;
        const [x, y] = chart.at(point);
        svg.dispatchEvent(
          new PointerEvent("pointermove", {
            clientX: box.left + x * scale,
            clientY: box.top + y * scale,
            pointerType: "mouse",
            bubbles: true,
          }),
        );
        this.readout.textContent = words(point, this.unit).replaceAll("\n", ", ");
      });
      svg.addEventListener("blur", () => {
        svg.dispatchEvent(new PointerEvent("pointerleave", { pointerType: "mouse" }));
        this.readout.textContent = "";
      });
    }

    save(kind) {
      const name = `${this.figure.anchor}.${kind}`;
      if (kind !== "csv" && this.drawn.length === 0) return undefined;
      if (kind === "csv") return drover.save(new Blob([this.csv()], { type: "text/csv" }), name);
      const text = this.svg();
      if (kind === "svg") return drover.save(new Blob([text], { type: "image/svg+xml" }), name);
      const image = new Image();
      image.onload = () => {
        const canvas = element("canvas", { width: image.width * 2, height: image.height * 2 });
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => drover.save(blob, name));
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
      return undefined;
    }

    /** All panels, their titles, the legend and what the signs mean in one drawing of at most this width. */
    svg(most = 1000) {
      const NS = "http://www.w3.org/2000/svg";
      const size = (svg) => [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height];
      const title = this.drawn.some((it) => it.title) ? 20 : 0;
      const cell = [
        d3.max(this.drawn, (it) => size(it.svg)[0]) + 16,
        d3.max(this.drawn, (it) => size(it.svg)[1]) + title + 6,
      ];
      const columns = Math.max(1, Math.min(this.drawn.length, Math.floor(most / cell[0])));
      const width = Math.max(columns * cell[0], 480);
      const rest = this.names.filter((it) => !this.hidden.has(it));
      const entry = (d3.max(rest, (it) => it.length) ?? 0) * 7 + 32;
      const perLine = Math.max(1, Math.floor((width - 8) / entry));
      const head = 30 + (this.names.length > 1 ? 18 * Math.ceil(rest.length / perLine) : 0);
      const height = head + Math.ceil(this.drawn.length / columns) * cell[1] + 16;
      const root = d3
        .create("svg:svg")
        .attr("xmlns", NS)
        .attr("width", width)
        .attr("height", height)
        .attr("viewBox", `0 0 ${width} ${height}`)
        .attr("font-family", "system-ui, sans-serif")
        .attr("color", css("--ink"))
        .attr("fill", css("--ink"));
      root.append("rect").attr("width", width).attr("height", height).attr("fill", css("--ground"));
      const write = (parent, x, y, size, text) =>
        parent.append("text").attr("x", x).attr("y", y).attr("font-size", size).text(text);
      write(root, 8, 18, 14, `${this.experiment.title} – ${this.figure.title}`).attr("font-weight", 700);
      if (this.names.length > 1) {
        rest.forEach((name, at) => {
          const [x, y] = [8 + (at % perLine) * entry, 38 + 18 * Math.floor(at / perLine)];
          const key = d3.select(root.node().appendChild(this.key(name)));
          key.attr("x", x).attr("y", y - 11);
          write(root, x + 20, y, 12, name);
        });
      }
      this.drawn.forEach((it, at) => {
        const group = root
          .append("g")
          .attr(
            "transform",
            `translate(${(at % columns) * cell[0]},${head + Math.floor(at / columns) * cell[1]})`,
          );
        write(group, 8, 14, 12, it.title).attr("font-weight", 600);
        const copy = it.svg.cloneNode(true);
        copy.setAttribute("y", title);
        copy.removeAttribute("tabindex");
        group.node().append(copy);
      });
      write(root, 8, height - 6, 11, this.signs()).attr("fill", css("--dim"));
      return new XMLSerializer().serializeToString(shorten(root.node()));
    }

    /** What the signs of a drawing mean, for those who see it without the page. */
    signs() {
      const shown = this.shown();
      const has = (kind) => shown.some((it) => it.kind === kind);
      return [
        has("median") && "Filled: medians, with intervals of 95 %",
        has("raw") && "small dots: runs",
        has("void") && "grey crosses: runs that do not count",
        has("published") && "hollow, dashed: the document’s values",
      ]
        .filter(Boolean)
        .join("; ");
    }

    csv() {
      const head = [
        "kind",
        "subject",
        "panel",
        this.figure.x ?? "x",
        "value",
        "low",
        "high",
        "rounds",
        "bound",
      ];
      const line = (it) => [
        it.kind,
        it.subject,
        it.panel,
        it.x ?? "",
        it.value,
        it.low ?? "",
        it.high ?? "",
        it.rounds ?? "",
        it.bound ?? "",
      ];
      return drover.csv([head, ...this.points.map(line)]);
    }
  }

  return { Figure, element, number };
})();
