// Legend buttons show and hide the points of a backend.
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
