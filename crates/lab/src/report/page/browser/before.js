// Part of the test in a browser: what goes wrong before, in and after the page's own scripts.
"use strict";
window.probe = { errors: [] };
addEventListener("error", (event) => probe.errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => probe.errors.push(String(event.reason)));
for (const kind of ["error", "warn"]) {
  console[kind] = (...words) => probe.errors.push(`${kind}: ${words.join(" ")}`);
}
