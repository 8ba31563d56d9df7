import {offset, duration} from './data.js';

const NS = 'http://www.w3.org/2000/svg';
const dashes = {etcd: '', server: '7 3', cache: '', read: '2 3'};
const lineColors = ['var(--text)', 'var(--blue)', 'var(--teal)', 'var(--purple)', 'var(--green)', 'var(--red)', 'var(--amber)'];

function svg(tag, attributes, ...kids) {
  const e = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...kids);
  return e;
}

// versions draws which version of an object each place had, over the part of the time that the timeline shows.
export function versions(data, app) {
  const section = document.getElementById('versions'), select = document.getElementById('versions-object');
  const chart = document.getElementById('versions-chart'), list = document.getElementById('versions-lines');
  const all = data.series ?? [];
  if (!all.length) return {draw() {}, show() {}, has: () => false};
  section.hidden = false;
  const by = new Map(all.map(s => [s.o, s]));
  const worst = s => Math.max(...s.l.map(l => l.b));
  for (const s of [...all].sort((a, b) => worst(b) - worst(a))) {
    const far = worst(s) >= 1 ? ` (up to ${duration(worst(s))} behind)` : '';
    select.append(new Option(data.objects[s.o].k + far, s.o));
  }
  let series = by.get(data.focus) ?? all[0];
  const hidden = new Set();
  select.value = series.o;
  select.addEventListener('change', () => { series = by.get(+select.value); legend(); draw(); });

  function legend() {
    list.replaceChildren(...series.l.map((line, i) => {
      const box = Object.assign(document.createElement('input'), {type: 'checkbox', checked: !hidden.has(line.n)});
      box.addEventListener('change', () => { hidden[box.checked ? 'delete' : 'add'](line.n); draw(); });
      const sample = svg('svg', {width: 30, height: 10, 'aria-hidden': 'true'}, svg('path', {
        d: 'M0 5H30', stroke: lineColors[i % lineColors.length], 'stroke-width': i ? 2.5 : 3.5, 'stroke-dasharray': dashes[line.k]}));
      const item = document.createElement('li'), label = document.createElement('label');
      const behind = line.b >= 1 ? `, ${duration(line.b)} behind etcd` : '';
      label.append(box, ' ', sample, `${line.n}${line.d ? ' (as far as the controller received from it)' : ''}${behind}`);
      item.append(label);
      return item;
    }));
  }

  let visible = false; // the timeline moves often while this is out of sight
  new IntersectionObserver(seen => {
    visible = seen[seen.length - 1].isIntersecting;
    draw();
  }, {rootMargin: '200px'}).observe(section);
  matchMedia('print').addEventListener('change', e => { if (e.matches) { visible = true; draw(); } });

  function draw() {
    const view = app.view();
    if (!view || !series || !visible) return;
    const count = series.v.length, gap = Math.max(13, Math.min(30, 420 / (count + 1)));
    const left = view.left || 90, width = Math.max(view.width, 320), top = 14, height = top + (count + 1) * gap + 34;
    const x = t => view.left ? view.x(view.u(t)) : left + view.x(view.u(t)) * (width - left) / width;
    const y = v => top + (count - 1 - v) * gap + gap / 2;
    const clip = v => Math.min(Math.max(v, left), width);
    const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': `Versions of ${data.objects[series.o].k}. ` + series.l.map(l => `${l.n}: ${duration(l.b)} behind etcd`).join('. ')});
    const every = Math.ceil(14 / gap);
    series.v.forEach((version, i) => {
      picture.append(svg('path', {d: `M${left} ${y(i)}H${width}`, stroke: 'var(--line)'}));
      if (i % every === 0 || version.d) picture.append(svg('text', {x: left - 6, y: y(i) + 4, 'text-anchor': 'end'}, view.left ? version.n : version.n.replace(' for deletion', '')));
    });
    picture.append(svg('text', {x: left - 6, y: y(-1) + 4, 'text-anchor': 'end'}, 'not there'));
    const end = data.to;
    const pieces = line => line.p.map(([t, v], i) => [t, line.p[i + 1]?.[0] ?? end, v]).filter(p => p[2] > -2);
    const etcd = pieces(series.l[0]);
    series.l.forEach((line, i) => {
      if (hidden.has(line.n)) return;
      const color = lineColors[i % lineColors.length], shift = (i - (series.l.length - 1) / 2) * 2.6;
      if (i > 0) { // where it had less than etcd
        let area = '';
        for (const [a, b, v] of pieces(line)) {
          for (const [c, d, w] of etcd) {
            const from = clip(x(Math.max(a, c))), to = clip(x(Math.min(b, d)));
            if (to > from && w > v) area += `M${from} ${y(v) + shift}H${to}V${y(w) + shift}H${from}Z`;
          }
        }
        if (area) picture.append(svg('path', {d: area, fill: color, 'fill-opacity': .16}));
      }
      let path = '', before = -Infinity;
      for (const [a, b, v] of pieces(line)) {
        const from = clip(x(a)), to = clip(x(b));
        if (to > from) path += `${before === from && path ? 'L' : 'M'}${from} ${y(v) + shift}H${to}`;
        before = to;
      }
      picture.append(svg('path', {d: path, fill: 'none', stroke: color, 'stroke-width': i ? 2.5 : 3.5, 'stroke-dasharray': dashes[line.k]},
        svg('title', {}, line.n)));
      if (line.k !== 'read') return;
      for (const [t, v] of line.p) { // a reconcile may read only once
        const at = x(t);
        if (v > -2 && at >= left && at <= width) {
          picture.append(svg('circle', {cx: at, cy: y(v) + shift, r: 3.4, fill: color}, svg('title', {}, `${offset(t)} ${line.n}`)));
        }
      }
    });
    const actions = data.items.filter(i => i.k === 'action' || i.k === 'actionfailed')
      .map(i => [x(i.t), i]).filter(([at]) => at >= left && at <= width);
    actions.forEach(([at, item], i) => {
      const crowded = (actions[i + 1]?.[0] ?? Infinity) - at < 62;
      picture.append(svg('path', {d: `M${at} 0V${height - 18}`, stroke: 'var(--purple)', 'stroke-dasharray': '5 3'},
        svg('title', {}, item.x)));
      picture.append(svg('text', {x: Math.min(at + 3, width - 60), y: height - 22, style: 'fill:var(--purple);font-weight:600'},
        item.x.replace(/^action (\d+) .*/, crowded ? '$1' : 'action $1')));
    });
    if (app.time !== null) {
      const at = x(app.time);
      if (at >= left && at <= width) {
        picture.append(svg('path', {d: `M${at} 0V${height - 18}`, stroke: 'var(--select-line)', 'stroke-width': 2}));
        picture.append(svg('text', {x: Math.min(at + 3, width - 60), y: height - 4}, offset(app.time)));
      }
    }
    chart.replaceChildren(picture);
  }
  legend();
  return {
    draw, has: o => by.has(o),
    show(o) {
      if (!by.has(o)) return;
      series = by.get(o);
      select.value = o;
      legend();
      draw();
    },
  };
}
