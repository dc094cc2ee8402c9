// Keeps the live page of a server up to date, by its events. Without this script the page reloads itself.
"use strict";
const grouped = (number) => Math.round(number).toLocaleString("en-US");
const units = ["B", "KiB", "MiB", "GiB", "TiB"];
// As `write` in page.rs has them.
const forms = {
  text: (value) => value,
  count: grouped,
  rate: (value) => (value < 100 ? value.toFixed(1) : grouped(value)),
  ratio: (value) => value.toFixed(2),
  seconds: (value) => `${value.toFixed(2)} s`,
  time: (value) =>
    value < 1e-3
      ? `${(value * 1e6).toFixed(1)} µs`
      : value < 1
        ? `${(value * 1e3).toFixed(1)} ms`
        : `${value.toFixed(1)} s`,
  bytes: (value) => {
    let unit = 0;
    for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
    return `${unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
  },
};
const link = document.getElementById("link");
const at = (status, key) => key.split(".").reduce((value, part) => value?.[part], status);
let started;

function show(status) {
  // Another server is there by now: the page is not made for its workers.
  if (started && status.started_at_s !== started) return location.reload();
  started = status.started_at_s;
  for (const place of document.querySelectorAll("[data-key]")) {
    const value = at(status, place.dataset.key);
    place.textContent = value == null ? "–" : forms[place.dataset.form](value);
    if (place.dataset.is) place.dataset.is = value;
  }
  const { history, history_most: most } = status.rates;
  const y = (rate) => (most > 0 ? 98 - (96 * rate) / most : 98);
  const points = history.map((rate, place) => `${600 - 10 * (history.length - 1 - place)},${y(rate)}`);
  document.getElementById("history").setAttribute("points", points.join(" "));
  link.textContent = "live, every second";
}

const source = new EventSource("status/events");
source.onmessage = (event) => show(JSON.parse(event.data));
source.onerror = () => {
  link.textContent = "no answer from the server: what stands here is old";
  // Refused: there are too many pages. This one loads itself again as one without a script does.
  if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
};
