// The page at work: figures are drawn when they come into view, claims are filtered, data is saved.
"use strict";
(() => {
  const data = JSON.parse(document.querySelector("script#report-data").textContent);
  drover.mark = (mark) => data.marks[mark] ?? mark;
  const { Figure, element } = drover.figures;

  drover.csv = (rows) => {
    const field = (it) =>
      /[",\r\n]/.test(String(it)) ? `"${String(it).replaceAll('"', '""')}"` : String(it);
    return rows.map((row) => `${row.map(field).join(",")}\r\n`).join("");
  };

  drover.save = (blob, name) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // Everything that is drawn: what draws it, and whether it is in view or was.
  const drawings = new Map();
  const sight = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) if (isIntersecting) show(target);
    },
    { rootMargin: "600px" },
  );

  function show(node) {
    const drawing = drawings.get(node);
    if (drawing.width === node.clientWidth || node.clientWidth === 0) return;
    drawing.width = node.clientWidth;
    drawing.draw();
  }

  function watch(node, draw) {
    drawings.set(node, { draw, width: null });
    sight.observe(node);
  }

  const redraw = () => {
    for (const [node, drawing] of drawings) {
      if (drawing.width !== null) {
        drawing.width = null;
        show(node);
      }
    }
  };
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let pending;
  window.addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      for (const [node, drawing] of drawings) if (drawing.width !== null) show(node);
    }, 150);
  });
  const drawAll = () => {
    for (const [node, drawing] of drawings) {
      drawing.width = null;
      show(node);
    }
  };
  // Paper has everything.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.paper = "";
    folded = [...document.querySelectorAll("details.fold:not([open])")];
    for (const node of folded) node.open = true;
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    delete document.documentElement.dataset.paper;
    for (const node of folded) node.open = false;
    drawAll();
  });

  for (const node of document.querySelectorAll("figure.plot")) {
    const experiment = data.experiments[node.dataset.experiment];
    let figure;
    node.querySelector(".canvas").style.minHeight = "16rem";
    watch(node, () => {
      figure ??= new Figure(node, experiment, experiment.figures[node.dataset.figure]);
      figure.draw();
    });
  }

  // The runs behind the effect that decides: a line for each round, a column for each cell.
  function runs({ samples, cells, metrics, id }, claim) {
    const shown = claim.cells ?? [];
    const column = samples.values[claim.metric] ?? [];
    const byRound = d3.group(samples.cell.keys(), (run) => samples.round[run]);
    if (shown.length === 0 || byRound.size === 0) return [];
    const value = (round, cell) => {
      const run = byRound.get(round).find((it) => samples.cell[it] === cell);
      if (run === undefined) return element("td", { class: "n" }, "–");
      const marks = [
        ...samples.marks[run].map(drover.mark),
        ...(run in samples.failures ? ["failed"] : []),
      ].join(", ");
      return element(
        "td",
        { class: "n", title: samples.failures[run] ?? marks },
        drover.number(column[run] ?? null),
        ...(marks ? [element("span", { class: "dim small" }, ` ${marks}`)] : []),
      );
    };
    const metric = metrics.find((it) => it.name === claim.metric);
    const head = element(
      "tr",
      {},
      element("th", {}, "Round"),
      ...shown.map((it) =>
        element("th", { class: "n" }, [cells[it].subject, cells[it].place].filter(Boolean).join(", ")),
      ),
    );
    const body = [...byRound.keys()]
      .sort(d3.ascending)
      .map((round) =>
        element("tr", {}, element("td", {}, String(round)), ...shown.map((cell) => value(round, cell))),
      );
    const title = element(
      "p",
      { class: "small" },
      `The runs behind the effect that decides: ${metric?.title ?? claim.metric}${metric?.unit ? ` [${metric.unit}]` : ""}. `,
      element("a", { href: `#${id}--data` }, "All values of all runs"),
      ".",
    );
    return [
      title,
      element(
        "div",
        { class: "scroll" },
        element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)),
      ),
    ];
  }

  for (const node of document.querySelectorAll("details.rows")) {
    const experiment = data.experiments[node.dataset.experiment];
    const claim = experiment.claims[node.dataset.claim];
    node.addEventListener(
      "toggle",
      () => node.querySelector(".runs").replaceChildren(...runs(experiment, claim)),
      { once: true },
    );
    const canvas = node.querySelector(".forest");
    const draw = () => {
      const width = Math.min(760, canvas.clientWidth);
      if (node.open && width > 0 && claim.rows.some((row) => row.value !== null))
        canvas.replaceChildren(drover.forest(claim, width));
    };
    node.addEventListener("toggle", draw);
    watch(canvas, draw);
  }

  for (const node of document.querySelectorAll(".order")) {
    const experiment = data.experiments[node.dataset.experiment];
    const { samples, cells, metrics } = experiment;
    const measured = metrics.filter((it) => (samples.values[it.name] ?? []).some((value) => value > 0));
    if (measured.length === 0) continue;
    const choice = element(
      "select",
      { "aria-label": "Metric" },
      ...measured.map((it) => element("option", { value: it.name }, it.title)),
    );
    const canvas = element("div");
    node.append(choice, canvas);
    const draw = () => {
      const points = (samples.values[choice.value] ?? []).flatMap((value, run) => {
        const cell = cells[samples.cell[run]];
        const median = cell?.estimates[choice.value]?.value;
        if (!(value > 0) || !(median > 0)) return [];
        const marks = samples.marks[run];
        return [
          {
            at: samples.at[run],
            ratio: value / median,
            kind: marks.length > 0 ? "marked" : "clean",
            title: [
              cell.subject,
              cell.place,
              `round ${samples.round[run]}`,
              `${drover.number(value)}`,
              marks.map(drover.mark).join(", "),
            ]
              .filter(Boolean)
              .join("\n"),
          },
        ];
      });
      canvas.replaceChildren(drover.order(points, Math.min(900, node.clientWidth)));
    };
    choice.addEventListener("change", draw);
    watch(node, draw);
  }

  // Every run with all of its values; the file in the session's folder has all of their digits.
  function samplesCsv({ samples, cells }) {
    const factors = Object.keys(cells[0].levels);
    const metrics = Object.keys(samples.values);
    const rows = samples.cell.map((cell, run) => [
      cells[cell].subject,
      ...factors.map((it) => cells[cell].levels[it]),
      samples.round[run],
      samples.at[run],
      samples.took[run],
      samples.marks[run].map(drover.mark).join(";"),
      samples.failures[run] ?? "",
      ...metrics.map((it) => samples.values[it][run] ?? ""),
    ]);
    return drover.csv([
      ["subject", ...factors, "round", "at-s", "took-s", "marks", "failure", ...metrics],
      ...rows,
    ]);
  }
  for (const button of document.querySelectorAll("button[data-download]")) {
    const experiment = data.experiments[button.dataset.download];
    button.hidden = false;
    button.addEventListener("click", () =>
      drover.save(new Blob([samplesCsv(experiment)], { type: "text/csv" }), `${experiment.id}-samples.csv`),
    );
  }

  // Filters of the table of claims.
  const filters = document.getElementById("claim-filters");
  const chosen = { by: "", tone: "" };
  const apply = () => {
    for (const body of document.querySelectorAll("table.claims tbody")) {
      const rows = [...body.querySelectorAll("tr[data-by]")];
      for (const row of rows) {
        row.hidden =
          (chosen.by !== "" && row.dataset.by !== chosen.by) ||
          (chosen.tone !== "" && row.dataset.tone !== chosen.tone);
      }
      body.hidden = rows.every((row) => row.hidden);
    }
  };
  const group = (key, choices) =>
    choices.map(([value, label]) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": value === "",
          "data-key": key,
          onclick: (event) => {
            chosen[key] = value;
            for (const other of filters.querySelectorAll(`[data-key=${key}]`))
              other.setAttribute("aria-pressed", other === event.target);
            apply();
          },
        },
        label,
      ),
    );
  if (filters) {
    filters.hidden = false;
    filters.append(
      ...group("by", [
        ["", "all claims"],
        ["document", "documents’"],
        ["ours", "ours"],
      ]),
      element("span", {}, " "),
      ...group("tone", [
        ["", "any verdict"],
        ["for", "✓ found true"],
        ["against", "✗ found untrue"],
        ["open", "? open"],
      ]),
    );
  }

  // A link into a folded part unfolds it; the contents say where the reader is.
  const unfold = () => {
    let name = location.hash.slice(1);
    try {
      name = decodeURIComponent(name);
    } catch {
      // A hash with a % that escapes nothing is the name as it stands.
    }
    const target = name && document.getElementById(name);
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    // Whoever follows a verdict to its claim wants to see what it rests on.
    const effects = target?.matches?.("article.claim") && target.querySelector("details.rows");
    if (effects) effects.open = true;
    if (target) target.scrollIntoView();
  };
  window.addEventListener("hashchange", unfold);
  const narrow = window.matchMedia("(max-width: 62rem)");
  const contents = document.querySelector(".contents details");
  const fold = () => {
    contents.open = !narrow.matches;
  };
  narrow.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => {
    if (event.target.tagName === "A" && narrow.matches) contents.open = false;
  });
  const links = new Map(
    [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
  );
  const where = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "0px 0px -75% 0px" },
  );
  for (const id of links.keys()) {
    const node = document.getElementById(id);
    if (node) where.observe(node);
  }
  unfold();

  // A session that shows its report live tells its progress beside the page. Whoever reads along gets each newer
  // report, at the place where they were.
  const PLACE = "drover-reader";
  const keyOf = (node) =>
    node.querySelector(":scope > summary [id]")?.id ??
    `${node.parentElement.closest("[id]")?.id}/${node.parentElement.querySelectorAll("details").length}`;
  const line = document.getElementById("progress");
  const top = (node) => node.getBoundingClientRect().top;
  const reload = () => {
    const open = [...document.querySelectorAll("main details[open]")].map(keyOf);
    // Reports grow: the place is that of the last element with a name that begins above the view.
    const named = [...document.querySelectorAll("main :is(h2, h3, h4, article)[id]")];
    // What is folded has a place, too, in browsers that skip it rather than not display it.
    const isShown = (it) => it.checkVisibility?.() ?? it.offsetParent !== null;
    const at = named.findLast((it) => isShown(it) && top(it) <= 0);
    const place = at ? { id: at.id, top: top(at) } : { y: window.scrollY };
    const progress = line.hidden ? "" : line.textContent;
    sessionStorage.setItem(PLACE, JSON.stringify({ ...place, open, progress }));
    // The browser's own way back counts in pixels, and would come after this one.
    history.scrollRestoration = "manual";
    location.reload();
  };
  const isServed = location.protocol.startsWith("http");
  const kept = isServed ? sessionStorage.getItem(PLACE) : null;
  if (kept !== null) {
    sessionStorage.removeItem(PLACE);
    const place = JSON.parse(kept);
    for (const node of document.querySelectorAll("main details"))
      node.open ||= place.open.includes(keyOf(node));
    // The line takes its room before the place is looked for.
    line.hidden = data.is_complete || place.progress === "";
    line.textContent = place.progress;
    const at = place.id && document.getElementById(place.id);
    if (at) window.scrollBy(0, top(at) - place.top);
    else window.scrollTo(0, place.y ?? 0);
    // When a page is loaded, the browser would go its own way.
    const isSafe = () => {
      history.scrollRestoration = "auto";
    };
    addEventListener("load", () => setTimeout(isSafe, 1000));
  }
  const version = async () =>
    (await fetch(location.pathname, { method: "HEAD", cache: "no-store" })).headers.get("etag");
  const follow = async () => {
    const first = await version();
    for (let isLive = false; ; isLive = true) {
      const found = await fetch("progress.json", { cache: "no-store" });
      const progress = found.ok ? await found.json() : { has_ended: true };
      if (progress.has_ended) {
        // The last report of the session is there.
        if (isLive) reload();
        return;
      }
      const { done, of, left, running } = progress;
      line.hidden = false;
      line.textContent = `The session runs: ${done} of ${of} runs, about ${left} left; ${running}.`;
      if ((await version()) !== first) {
        reload();
        return;
      }
      await new Promise((then) => setTimeout(then, 2000));
    }
  };
  if (isServed && !data.is_complete)
    follow().catch(() => {
      if (!line.hidden) line.textContent = "The lab has ended: this is the report as it was last.";
    });
  document.documentElement.dataset.ready = "true";
})();
