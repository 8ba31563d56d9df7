// What has less contrast than WCAG AA asks for: 4.5 for text, 3 for marks.
(() => {
  const c = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = color => {
    c.fillStyle = '#fff';
    c.fillStyle = color;
    c.fillRect(0, 0, 1, 1);
    return [...c.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; })
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => { const [x, y] = [light(rgb(a)), light(rgb(b))].sort((m, n) => n - m); return (x + .05) / (y + .05); };
  const clear = color => color === 'transparent' || /, 0\)$/.test(color);
  const behind = e => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor; if (!clear(b)) return b; } return 'white'; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('script, style, svg, [disabled]') || !e.checkVisibility()) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const r = ratio(getComputedStyle(e).color, behind(e));
    if (r < 4.5) bad.push(e.tagName + ' ' + e.className + ' ' + e.textContent.trim().slice(0, 30) + ': ' + r.toFixed(1));
  }
  const style = getComputedStyle(document.documentElement), color = n => style.getPropertyValue('--' + n).trim();
  const check = (a, b, least) => { const r = ratio(color(a), color(b)); if (r < least) bad.push(a + ' on ' + b + ': ' + r.toFixed(1)); };
  for (const mark of ['red', 'green', 'amber', 'purple', 'blue', 'teal', 'hold', 'soft', 'select-line']) {
    for (const ground of ['back', 'band']) check(mark, ground, 3);
  }
  for (const ground of ['back', 'band', 'head', 'select']) check('text', ground, 4.5);
  for (const flag of ['purple', 'red']) check('back', flag, 4.5); // an action's name
  return bad;
})()
