import {difference, flatten} from './diff.js';
import {stateOf, offset, duration} from './data.js';

function el(tag, props = {}, ...kids) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...kids);
  return e;
}

// details shows what the chosen item was.
export function details(data, app) {
  const box = document.getElementById('details');
  let turn = 0;

  async function state(i) { return i < 0 ? null : stateOf(data, i); }

  function diffOf(title, before, after) {
    const lines = difference(before, after);
    const pre = el('pre', {className: 'diff'});
    for (const [sign, line] of lines) pre.append(el(sign === '-' ? 'del' : 'ins', {}, `${sign} ${line}`));
    if (!lines.length) pre.append('nothing but its version');
    return [el('h4', {}, title), pre];
  }

  return async function show(item) {
    const mine = ++turn;
    const [now, before, etcd] = await Promise.all([state(item.s), state(item.p), state(item.c)]);
    if (mine !== turn) return;
    const parts = [el('h3', {}, item.x)];
    const clock = new Date(data.zero + item.t).toISOString().slice(11, 23);
    parts.push(el('p', {className: 'soft'}, `${offset(item.t)}${item.e > item.t ? `, for ${duration(item.e - item.t)}` : ''} · ` +
      `${clock} UTC${item.q?.length ? ` · event ${item.q.join(', ')}` : ''}`));
    if (item.d?.length) parts.push(el('ul', {}, ...item.d.map(line => el('li', {}, line))));
    const buttons = el('p', {className: 'tools'});
    const button = (text, act) => buttons.append(el('button', {type: 'button', onclick: act}, text));
    if (item.o >= 0) {
      button('Only this object', () => app.setObject(item.o));
      if (app.hasVersions(item.o)) button('Its versions', () => app.showVersions(item.o));
    }
    if (data.logs?.length) button('Logs at this time', () => app.showLogs());
    parts.push(buttons);
    if (now && etcd) parts.push(...diffOf('What etcd has at that time is different:', now, etcd));
    if (now && before) parts.push(...diffOf('What has changed:', before, now));
    const together = item.r ? data.items.filter(i => i.r === item.r && i !== item && i.k !== 'hold') : [];
    if (together.length) {
      parts.push(el('h4', {}, 'In the same reconcile'), el('ul', {}, ...together.slice(0, 60).map(i =>
        el('li', {}, el('a', {href: '#timeline', onclick: e => { e.preventDefault(); app.choose(i); }}, offset(i.t)), ` ${i.x}`))));
    }
    if (now) {
      const text = [...flatten(now)].map(([path, value]) => `${path} = ${value}`).join('\n');
      parts.push(el('details', {open: !before && !etcd && text.length < 1500}, el('summary', {}, 'The whole object'), el('pre', {}, text)));
    }
    box.replaceChildren(...parts);
    box.scrollTop = 0;
  };
}
