// What the figures of the page look like: Observable Plot's marks for lines, rows, claims and run order.
"use strict";
window.drover = (() => {
  // Okabe and Ito's colours, which colour-blind readers tell apart; the two that fade on white are darker.
  const LIGHT = ["#0072b2", "#d55e00", "#00805c", "#b1568a", "#8a6d00", "#2b8cbe", "#5b4a9e"];
  const DARK = ["#56b4e9", "#ff9247", "#2fc79b", "#f09cc8", "#e8c547", "#9bd3f5", "#b3a3f0"];
  // Eight symbols beside seven colours: 56 subjects before a pair comes again.
  const SYMBOLS = ["circle", "square2", "triangle2", "diamond2", "plus", "times", "star", "asterisk"];
  const DASHES = [null, "7,2", "2,2", "9,3,2,3"];

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  /** Whether the page is dark: figures that are drawn for paper are light. */
  const isDark = () => dark.matches && !("paper" in document.documentElement.dataset);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** Colour, symbol and dash of the subject with this place in the experiment. */
  function look(place) {
    const colours = isDark() ? DARK : LIGHT;
    return {
      colour: colours[place % colours.length],
      symbol: SYMBOLS[place % SYMBOLS.length],
      dash: DASHES[Math.floor(place / colours.length) % DASHES.length],
    };
  }

  /** Three significant digits, without an exponent where people read none. */
  function number(value) {
    if (value === null || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const digits = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en", { maximumFractionDigits: digits, useGrouping: Math.abs(value) >= 1e5 });
  }

  const tick = (value) =>
    Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 1e-3)
      ? d3.format(".3~s")(value)
      : number(value);

  /** Ticks of a logarithmic axis: powers of ten, with others between them where there is room. */
  function logTicks([low, high]) {
    const ticks = [];
    const decades = Math.log10(high / low);
    if (decades < 0.7) return d3.ticks(low, high, 5);
    const between = decades < 2 ? [1, 2, 5] : decades < 3 ? [1, 3] : [1];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const step of between) ticks.push(step * 10 ** power);
    }
    return ticks.filter((it) => it >= low && it <= high);
  }

  /** A domain with a little room around the values. */
  function domain(values, isLog) {
    const all = values.filter((it) => Number.isFinite(it) && (!isLog || it > 0));
    if (all.length === 0) return isLog ? [1, 10] : [0, 1];
    const [low, high] = d3.extent(all);
    if (isLog) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
    const from = low < 0 ? low * 1.05 : 0;
    return [from, high === from ? from + 1 : high + (high - from) * 0.05];
  }

  // d3 leaves out the names of logarithmic ticks whose first digits are too far above a power of the base: with
  // base 10, that of 9000; with base 2, none of a handful of ticks.
  const axis = (isLog, range, label) => ({
    type: isLog ? "log" : "linear",
    ...(isLog ? { base: 2 } : {}),
    domain: range,
    label,
    grid: true,
    ticks: isLog ? logTicks(range) : 6,
    tickFormat: tick,
  });

  /** The ends of a point's interval within a domain: an end that is open, or not to be shown, is the domain's. */
  const ends = (point, [low, high]) => ({
    low: Math.max(low, point.low),
    high: point.high === null ? high : Math.min(high, point.high),
  });

  const style = { background: "transparent", fontSize: "12px", fontFamily: "inherit", color: "inherit" };

  /** The words of a point, for pointing at it and for reading it aloud. */
  function words(point, unit) {
    const sign = { "at-least": "≥ ", "at-most": "≤ ", unknown: "bound " }[point.bound] ?? "";
    const interval =
      point.low === null || point.low === undefined
        ? ""
        : ` (${number(point.low)} … ${point.high === null ? "∞" : number(point.high)})`;
    const lines = [point.published ? `${point.subject}, published` : point.subject];
    if (point.place) lines.push(point.place);
    lines.push(`${sign}${number(point.value)}${unit ? ` ${unit}` : ""}${interval}`);
    if (point.rounds !== undefined)
      lines.push(
        `${point.rounds} ${point.rounds === 1 ? "round" : "rounds"}${point.marks ? `; ${point.marks}` : ""}`,
      );
    return lines.join("\n");
  }

  const tip = (points, x, y, unit) =>
    Plot.tip(
      points,
      Plot.pointer({
        x,
        y,
        title: (point) => words(point, unit),
        fontSize: 12,
        lineWidth: 24,
        fill: css("--panel"),
        stroke: css("--dim"),
      }),
    );

  /** Moves labels apart that would lie on each other; returns their places. */
  function apart(places, gap, low, high) {
    const order = places.map((y, at) => ({ y, at })).sort((a, b) => a.y - b.y);
    order.forEach((it, at) => {
      if (at > 0) it.y = Math.max(it.y, order[at - 1].y + gap);
    });
    let limit = high;
    for (const it of order.toReversed()) {
      it.y = Math.max(low, Math.min(it.y, limit));
      limit = it.y - gap;
    }
    const found = [];
    order.forEach((it) => {
      found[it.at] = it.y;
    });
    return found;
  }

  /** Names at the ends of lines, instead of a legend. */
  function labelEnds(svg, series, x, y, width) {
    const ends = series.filter((one) => one.points.length > 0 && one.label);
    const last = (one) => d3.greatest(one.points, (point) => point.x);
    const range = d3.extent(y.range);
    const places = apart(
      ends.map((one) => y.apply(last(one).value)),
      13,
      range[0],
      range[1],
    );
    ends.forEach((one, at) => {
      const point = last(one);
      d3.select(svg)
        .append("text")
        .attr("x", Math.min(x.apply(point.x) + 8, width))
        .attr("y", places[at])
        .attr("dy", "0.32em")
        .attr("text-anchor", "start")
        .attr("fill", one.look.colour)
        .attr("font-size", 12)
        .text(one.label);
    });
  }

  /** A panel of lines: `series` have looks, medians, raw runs and published values. */
  function lines({
    series,
    ground,
    width,
    height,
    xLog,
    yLog,
    xDomain,
    yDomain,
    xLabel,
    yLabel,
    unit,
    canLabel,
  }) {
    const marks = [];
    for (const one of ground ?? []) {
      marks.push(Plot.line(one.points, { x: "x", y: "value", stroke: css("--line"), strokeWidth: 1 }));
    }
    for (const one of series) {
      const { colour, symbol, dash } = one.look;
      const own = { x: "x", y: "value", stroke: colour };
      marks.push(
        Plot.dot(one.raw, { x: "x", y: "value", r: 1.7, fill: colour, fillOpacity: 0.4 }),
        Plot.dot(
          one.void.filter((it) => !yLog || it.value > 0),
          { x: "x", y: "value", r: 2, symbol: "times", stroke: css("--dim"), clip: true },
        ),
        Plot.ruleX(
          one.points.filter((it) => Number.isFinite(it.low)),
          {
            x: "x",
            y1: (it) => ends(it, yDomain).low,
            y2: (it) => ends(it, yDomain).high,
            stroke: colour,
            strokeOpacity: 0.8,
          },
        ),
        Plot.line(one.points, { ...own, strokeDasharray: dash, strokeWidth: 1.6 }),
        Plot.dot(one.points, { ...own, symbol, r: 3.6, fill: colour }),
        Plot.line(one.published, { ...own, strokeDasharray: "4,4", strokeOpacity: 0.8 }),
        Plot.dot(one.published, { ...own, symbol: "circle", r: 3.4, fill: css("--ground") }),
      );
    }
    const all = series.flatMap((one) => [...one.points, ...one.published]);
    marks.push(tip(all, "x", "value", unit));
    const longest = d3.max(series, (one) => (one.label ?? "").length) ?? 0;
    const right = canLabel ? Math.min(width * 0.3, longest * 7 + 12) : 14;
    const levels = [...new Set(all.map((it) => it.x))].sort(d3.ascending);
    const xAxis = axis(xLog, xDomain, xLabel);
    if (levels.length <= 8) xAxis.ticks = spread(levels, xLog, xDomain, width);
    else if (xLog) xAxis.ticks = spread(withHighest(xAxis.ticks, levels), xLog, xDomain, width);
    const svg = Plot.plot({
      width,
      height,
      marginLeft: 48,
      marginRight: right,
      marginBottom: 34,
      marginTop: 24,
      style,
      x: { ...xAxis, labelAnchor: "center" },
      y: axis(yLog, yDomain, yLabel),
      marks,
    });
    if (canLabel) labelEnds(svg, series, svg.scale("x"), svg.scale("y"), width);
    return {
      svg,
      points: all,
      at: (point) => [svg.scale("x").apply(point.x), svg.scale("y").apply(point.value)],
    };
  }

  /** Ticks up to the highest level, which is one of them. */
  const withHighest = (ticks, levels) => [...ticks.filter((it) => it < levels.at(-1)), levels.at(-1)];

  /** Those of the ticks whose names do not lie on each other. The highest one, which readers look for, always stays. */
  function spread(ticks, isLog, [low, high], width) {
    const place = (it) => (isLog ? Math.log(it / low) / Math.log(high / low) : (it - low) / (high - low));
    const areApart = (one, next) => (place(next) - place(one)) * width * 0.75 >= 30;
    const highest = ticks.at(-1);
    const kept = [];
    for (const tick of ticks.slice(0, -1)) {
      const isApart = kept.length === 0 || areApart(kept.at(-1), tick);
      if (isApart && areApart(tick, highest)) kept.push(tick);
    }
    return [...kept, highest];
  }

  /** A panel of rows, one for each subject or level; the value lies along the horizontal axis. */
  function rows({ series, width, yLog, yDomain, yLabel, unit }) {
    const names = series.map((one) => one.name);
    const marks = [];
    for (const one of series) {
      const { colour, symbol } = one.look;
      marks.push(
        Plot.dot(one.raw, { x: "value", y: () => one.name, r: 1.9, fill: colour, fillOpacity: 0.4, dy: 5 }),
        Plot.dot(
          one.void.filter((it) => !yLog || it.value > 0),
          { x: "value", y: () => one.name, r: 2, symbol: "times", stroke: css("--dim"), dy: 5, clip: true },
        ),
        Plot.ruleY(
          one.points.filter((it) => Number.isFinite(it.low)),
          {
            x1: (it) => ends(it, yDomain).low,
            x2: (it) => ends(it, yDomain).high,
            y: () => one.name,
            stroke: colour,
            strokeWidth: 2,
          },
        ),
        Plot.dot(one.points, { x: "value", y: () => one.name, symbol, r: 4.2, fill: colour, stroke: colour }),
        Plot.dot(one.published, {
          x: "value",
          y: () => one.name,
          symbol: "circle",
          r: 4,
          stroke: colour,
          fill: css("--ground"),
          strokeDasharray: "2,1.5",
        }),
      );
    }
    const all = series.flatMap((one) =>
      [...one.points, ...one.published].map((it) => ({ ...it, row: one.name })),
    );
    marks.push(tip(all, "value", "row", unit));
    const longest = d3.max(names, (name) => name.length) ?? 0;
    const marginLeft = Math.min(width * 0.42, longest * 7 + 16);
    const most = Math.max(6, Math.floor(marginLeft / 7) - 1);
    const svg = Plot.plot({
      width,
      height: names.length * 26 + 58,
      marginLeft,
      marginRight: 20,
      marginTop: 8,
      marginBottom: 38,
      style,
      x: { ...axis(yLog, yDomain, yLabel), labelAnchor: "center" },
      y: {
        type: "band",
        domain: names,
        label: null,
        tickSize: 0,
        tickFormat: (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name),
      },
      marks,
    });
    const middle = svg.scale("y").bandwidth / 2;
    return {
      svg,
      points: all,
      at: (point) => [svg.scale("x").apply(point.value), svg.scale("y").apply(point.row) + middle],
    };
  }

  /** The effects of a claim, the region in which it holds, and the document's values. */
  function forest(claim, width) {
    const values = claim.rows.flatMap((row) => [row.value, row.low, row.high, row.published]);
    const isLog =
      claim.is_log &&
      values.every((it) => it === null || it === undefined || it > 0) &&
      [claim.above, claim.below].every((it) => it === null || it > 0);
    const all = [...values, claim.above, claim.below, claim.null].filter(
      (it) => it !== null && it !== undefined,
    );
    const range = isLog ? domain(all, true) : padded(all);
    const clip = (it, end) =>
      it === null || it === undefined ? end : Math.max(range[0], Math.min(range[1], it));
    const shown = claim.rows.filter((row) => row.value !== null).map((row, at) => ({ ...row, at }));
    const tone = { for: css("--for"), against: css("--against"), open: css("--open") };
    const each = { y: "at" };
    return Plot.plot({
      width,
      height: shown.length * 34 + 44,
      marginLeft: 10,
      marginRight: 14,
      marginTop: 4,
      marginBottom: 36,
      style,
      x: { ...axis(isLog, range, "Effect"), labelAnchor: "center" },
      y: { domain: [-0.75, shown.length - 0.35], reverse: true, axis: null },
      marks: [
        Plot.rect([claim], {
          x1: clip(claim.above, range[0]),
          x2: clip(claim.below, range[1]),
          y1: -0.75,
          y2: shown.length - 0.35,
          fill: css("--for"),
          fillOpacity: 0.12,
        }),
        claim.null === null || claim.null < range[0]
          ? null
          : Plot.ruleX([claim.null], { stroke: css("--dim"), strokeDasharray: "2,3" }),
        Plot.ruleY(shown, {
          ...each,
          x1: (row) => clip(row.low, range[0]),
          x2: (row) => clip(row.high, range[1]),
          stroke: (row) => tone[row.tone],
          strokeWidth: 2,
        }),
        Plot.dot(shown, {
          ...each,
          x: "value",
          fill: (row) => tone[row.tone],
          r: (row) => (row.decides ? 5 : 3.5),
          symbol: (row) => (row.decides ? "diamond2" : "circle"),
        }),
        Plot.dot(
          shown.filter((row) => Number.isFinite(row.published)),
          {
            ...each,
            x: "published",
            r: 4,
            stroke: css("--ink"),
            fill: css("--ground"),
            strokeDasharray: "2,1.5",
          },
        ),
        Plot.text(shown, {
          ...each,
          frameAnchor: "left",
          textAnchor: "start",
          dy: -12,
          text: "label",
          fill: css("--ink"),
          fontWeight: (row) => (row.decides ? 700 : 400),
        }),
      ].filter(Boolean),
      symbol: { type: "identity" },
      color: { type: "identity" },
      r: { type: "identity" },
    });
  }

  function padded(values) {
    const [low, high] = d3.extent(values);
    const room = (high - low || 1) * 0.06;
    return [low - room, high + room];
  }

  /** Every run at its time as a multiple of its cell's median. */
  function order(points, width) {
    const range = domain([0.8, 1.25, ...points.map((it) => it.ratio)], true);
    const kinds = [
      ["clean", "circle"],
      ["marked", "times"],
    ];
    return Plot.plot({
      width,
      height: 190,
      marginLeft: 48,
      marginRight: 16,
      marginBottom: 34,
      style,
      x: { label: "Seconds since the session began", labelAnchor: "center", tickFormat: tick, nice: true },
      y: {
        ...axis(true, range, "÷ median of its cell"),
        ticks: logTicks(range).concat(range[1] / range[0] < 4 ? [0.9, 1.1] : []),
      },
      marks: [
        Plot.ruleY([1], { stroke: css("--dim") }),
        ...kinds.map(([kind, symbol]) =>
          Plot.dot(
            points.filter((it) => it.kind === kind),
            {
              x: "at",
              y: "ratio",
              symbol,
              r: 2.6,
              stroke: kind === "clean" ? css("--link") : css("--against"),
              strokeOpacity: 0.8,
            },
          ),
        ),
        Plot.tip(
          points,
          Plot.pointer({ x: "at", y: "ratio", title: "title", fill: css("--panel"), stroke: css("--dim") }),
        ),
      ],
    });
  }

  return { look, number, domain, words, lines, rows, forest, order, css, isDark };
})();
