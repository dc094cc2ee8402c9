// Legend buttons show and hide a mechanism; pointing at a panel lists its values.
'use strict';
const each = (selector, act, root = document) => root.querySelectorAll(selector).forEach(act);

each('.legend button', button => {
  const mine = act => each('[data-series]', e => {
    if (e !== button && e.dataset.series === button.dataset.series) act(e);
  });
  const focus = on => {
    document.body.classList.toggle('has-focus', on);
    mine(e => e.classList.toggle('focus', on));
  };
  button.addEventListener('click', () => {
    const shown = button.getAttribute('aria-pressed') === 'false';
    button.setAttribute('aria-pressed', shown);
    mine(e => e.classList.toggle('hidden', !shown));
  });
  button.addEventListener('pointerenter', () => focus(true));
  button.addEventListener('pointerleave', () => focus(false));
});

const number = v => v === 0 ? '0' : Math.abs(v) >= 1000 ? Math.round(v).toString() : Number(v.toPrecision(3)).toString();

each('.panels figure', figure => {
  const source = figure.querySelector('script');
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const tip = document.createElement('div');
  tip.className = 'tip hidden';
  figure.append(tip);
  each('svg.panel', svg => {
    const { left, right, width, max } = Object.fromEntries(Object.entries(svg.dataset).map(([k, v]) => [k, +v]));
    const cross = svg.querySelector('.cross');
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const scale = box.width / width;
      const at = ((event.clientX - box.left) / scale - left) / (right - left) * max;
      const xs = [...new Set(data.flatMap(s => s.points.map(p => p[0])))];
      const x = xs.reduce((a, b) => Math.abs(b - at) < Math.abs(a - at) ? b : a);
      const rows = data
        .filter(s => ![...svg.querySelectorAll('.series.hidden')].some(g => g.dataset.series === s.name))
        .flatMap(s => s.points.filter(p => p[0] === x).map(p => ({ name: s.name, place: s.place, p })))
        .sort((a, b) => b.p[1] - a.p[1]);
      tip.replaceChildren();
      const head = document.createElement('b');
      head.textContent = number(x) + ' ' + figure.dataset.x;
      const table = document.createElement('table');
      for (const row of rows) {
        const tr = table.insertRow();
        const dot = tr.insertCell();
        dot.textContent = '●';
        dot.style.color = 'var(--s' + row.place + ')';
        tr.insertCell().textContent = row.name;
        tr.insertCell().textContent = number(row.p[1]);
        tr.insertCell().textContent = number(row.p[2]) + ' … ' + number(row.p[3]);
      }
      tip.append(head, table);
      tip.classList.remove('hidden');
      const px = left + (right - left) * x / max;
      cross.setAttribute('transform', 'translate(' + px + ' 0)');
      cross.style.visibility = 'visible';
      const side = px * scale > box.width / 2 ? px * scale - tip.offsetWidth - 14 : px * scale + 14;
      tip.style.left = Math.max(0, side) + 'px';
      tip.style.top = svg.parentElement.offsetTop + 10 + 'px';
    });
    svg.addEventListener('pointerleave', () => {
      tip.classList.add('hidden');
      cross.style.visibility = 'hidden';
    });
  }, figure);
});
