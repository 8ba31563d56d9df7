import {makeAxis, search, ticks} from './axis.js';
import {offset, duration} from './data.js';
import {looks, isSpan, colors, drawPoint, drawSpan} from './look.js';

const ROW = 22, GROUP = 24, AXIS = 46, NAME = 15;

// timeline draws the lanes on a canvas that is as large as the visible part, whatever the number of lanes and items.
// app tells it what is chosen, and is told by app.choose and app.moved.
export function timeline(data, app) {
  const chart = document.getElementById('chart'), canvas = chart.querySelector('canvas');
  const pane = document.getElementById('pane'), spacer = document.getElementById('spacer');
  const tip = document.getElementById('tip'), live = document.getElementById('live');
  const c = canvas.getContext('2d', {alpha: false});
  let palette = colors();
  let width = 0, height = 0, label = 0;
  let head = 0; // on a narrow screen the names of lanes stand above them, not beside them
  let axis, u0, u1;
  let rows = [], rowOf = new Map();
  let waiting = false;

  const lanes = data.lanes.map((lane, i) => ({...lane, i, points: [], spans: [], levels: 1}));
  for (const item of data.items) {
    (isSpan(item.k) ? lanes[item.l].spans : lanes[item.l].points).push(item);
    item.level = 0;
  }
  for (const lane of lanes) { // reconciles and holds that overlap are drawn above each other
    const ends = [];
    for (const item of lane.spans) {
      if (looks[item.k].shape === 'area' || looks[item.k].shape === 'band' || looks[item.k].shape === 'thin') continue;
      let level = ends.findIndex(end => end <= item.t);
      if (level < 0) level = Math.min(ends.length, 4);
      ends[level] = item.e || item.t;
      item.level = level;
    }
    lane.levels = Math.max(1, ends.length);
  }
  const actions = data.items.filter(i => i.k === 'action' || i.k === 'actionfailed');
  const times = () => {
    const all = new Set();
    for (const item of data.items) {
      if (item.k === 'election' || item.k === 'calm') continue;
      all.add(item.t);
      if (item.e && item.k !== 'life' && item.k !== 'process') all.add(item.e);
    }
    return [...all].sort((a, b) => a - b);
  };
  const moments = times();

  const x = u => label + (u - u0) / (u1 - u0) * (width - label);
  const unit = px => u0 + (px - label) / (width - label) * (u1 - u0);

  function setAxis(options) {
    const from = axis && axis.t(Math.max(u0, axis.low)), to = axis && axis.t(Math.min(u1, axis.high));
    const whole = !axis || (u0 <= axis.low && u1 >= axis.high);
    axis = makeAxis(moments, data.from, data.to, options);
    for (const item of data.items) {
      item.u = axis.u(item.t);
      item.v = item.e ? axis.u(item.e) : item.u;
    }
    for (const lane of lanes) lane.us = lane.points.map(i => i.u);
    u0 = axis.low;
    u1 = axis.high;
    if (!whole) show(axis.u(from), axis.u(to));
    changed();
  }

  // show shows the part between two units.
  function show(a, b) {
    const whole = axis.high - axis.low, least = whole / 200000;
    let w = Math.min(Math.max(b - a, least), whole);
    u0 = Math.min(Math.max((a + b) / 2 - w / 2, axis.low), axis.high - w);
    u1 = u0 + w;
    changed();
  }

  function zoom(factor, px = (width + label) / 2) {
    const at = unit(px);
    show(at - (at - u0) / factor, at + (u1 - at) / factor);
  }

  function layout() {
    rows = [];
    rowOf.clear();
    let y = 0, group = '';
    for (const lane of lanes) {
      if (!app.isShown(lane)) continue;
      if (lane.g !== group) {
        group = lane.g;
        rows.push({y, h: GROUP, group});
        y += GROUP;
      }
      const h = head + (lane.levels > 1 ? 8 + lane.levels * 9 : ROW);
      rowOf.set(lane.i, rows.length);
      rows.push({y, h, lane});
      y += h;
    }
    spacer.style.height = `${y + AXIS + 4}px`;
    chart.style.height = y + AXIS + 6 < 640 ? `${Math.max(y + AXIS + 6, 180)}px` : '';
    resize();
  }

  function resize() {
    const box = chart.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    width = box.width;
    height = box.height;
    const narrow = width < 640;
    if (narrow !== (head > 0)) {
      head = narrow ? NAME : 0;
      layout();
      return;
    }
    label = narrow ? 0 : Math.min(300, Math.max(180, width * 0.22));
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    changed();
  }

  function changed() {
    if (!waiting) {
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); app.moved(); });
    }
  }

  function draw() {
    const scroll = pane.scrollTop;
    c.fillStyle = palette.back;
    c.fillRect(0, 0, width, height);
    c.textBaseline = 'middle';
    c.save();
    c.beginPath();
    c.rect(0, AXIS, width, height - AXIS);
    c.clip();
    const first = Math.max(search(rows.map(r => r.y), scroll), 0);
    for (let r = first; r < rows.length; r++) {
      const row = rows[r], y = row.y - scroll + AXIS;
      if (y > height) break;
      if (row.group) {
        c.fillStyle = palette.head;
        c.fillRect(0, y, width, row.h);
        c.fillStyle = palette.text;
        c.font = '600 12.5px system-ui, sans-serif';
        c.fillText(row.group, 8, y + row.h / 2 + .5);
        continue;
      }
      if (r % 2) {
        c.fillStyle = palette.band;
        c.fillRect(0, y, width, row.h);
      }
      drawLane(row.lane, y + head, row.h - head);
    }
    drawFolds();
    drawActions();
    drawCursor();
    c.restore();
    drawLabels(first, scroll);
    drawAxis();
  }

  function drawLane(lane, y, h) {
    c.save();
    c.beginPath();
    c.rect(label, y, width - label, h);
    c.clip();
    for (const item of lane.spans) {
      if (item.v < u0 || item.u > u1) continue;
      const look = looks[item.k], many = lane.levels > 1 && (look.shape === 'span' || look.shape === 'bar');
      const top = many ? y + 4 + item.level * 9 : y + (look.shape === 'span' ? 4 : 1);
      const high = many ? 10 : look.shape === 'span' ? h - 8 : h - 2;
      c.globalAlpha = app.matches(item) ? 1 : .22;
      drawSpan(c, look, palette, Math.max(x(item.u), label - 4), Math.min(x(item.v), width + 4), top, high);
      c.globalAlpha = 1;
      if (item === app.chosen) outline(x(item.u) - 2, top - 1, Math.max(x(item.v) - x(item.u), 2) + 4, high + 2);
    }
    let i = Math.max(search(lane.us, u0 - 8 / (width - label) * (u1 - u0)), 0);
    let lastX = -10, lastKind = '', pixel = new Set();
    for (; i < lane.points.length; i++) {
      const item = lane.points[i];
      if (item.u > u1 && x(item.u) > width + 8) break;
      const px = x(item.u), at = Math.round(px);
      const look = looks[item.k], matches = app.matches(item);
      const key = item.k + (matches ? '' : '-');
      if (at !== lastX) { pixel.clear(); lastX = at; }
      if (pixel.has(key) && item !== app.chosen) continue; // it would be drawn over its like
      pixel.add(key);
      if (item.e && x(item.v) - px > 3) {
        c.fillStyle = palette[look.color];
        c.globalAlpha = matches ? .7 : .2;
        c.fillRect(px, y + h / 2 - 1, x(item.v) - px, 2);
      }
      c.globalAlpha = matches ? 1 : .22;
      drawPoint(c, look, palette, px, y + h / 2);
      c.globalAlpha = 1;
      if (item === app.chosen) outline(px - 9, y + 1, 18, h - 2);
    }
    c.restore();
  }

  function outline(px, y, w, h) {
    c.strokeStyle = palette['select-line'];
    c.lineWidth = 2;
    c.strokeRect(px, y, w, h);
  }

  function drawFolds() {
    for (const f of axis.folds) {
      const a = x(axis.u(f.from)), b = x(axis.u(f.to));
      if (b < label || a > width) continue;
      const mid = Math.max((a + b) / 2, label);
      c.fillStyle = palette.back;
      c.globalAlpha = .75;
      c.fillRect(mid - 4, AXIS, 8, height);
      c.globalAlpha = 1;
      c.strokeStyle = palette.soft;
      c.lineWidth = 1;
      for (const side of [-4, 4]) {
        c.beginPath();
        for (let y = AXIS, n = 0; y < height + 6; y += 6, n++) c.lineTo(mid + side + (n % 2 ? 1.5 : -1.5), y);
        c.stroke();
      }
    }
  }

  function drawActions() {
    c.setLineDash([5, 3]);
    c.lineWidth = 1.4;
    for (const a of actions) {
      const px = x(a.u);
      if (px < label || px > width) continue;
      c.strokeStyle = palette[looks[a.k].color];
      c.beginPath();
      c.moveTo(px, AXIS);
      c.lineTo(px, height);
      c.stroke();
    }
    c.setLineDash([]);
  }

  function drawCursor() {
    if (app.time === null) return;
    const px = x(axis.u(app.time));
    if (px < label || px > width) return;
    c.fillStyle = palette['select-line'];
    c.globalAlpha = .8;
    c.fillRect(px - 1, AXIS, 2, height);
    c.globalAlpha = 1;
  }

  const fitted = new Map(); // measuring is slow

  // fitText shortens a text in its middle: names differ at their ends.
  function fitText(text, room) {
    const key = `${Math.round(room)} ${text}`;
    if (!fitted.has(key)) {
      if (fitted.size > 5000) fitted.clear();
      fitted.set(key, shortened(text, room));
    }
    return fitted.get(key);
  }

  function shortened(text, room) {
    if (c.measureText(text).width <= room) return text;
    const cut = n => `${text.slice(0, Math.ceil(n * .4))}…${text.slice(text.length - Math.floor(n * .6))}`;
    let low = 0, high = text.length;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (c.measureText(cut(mid)).width <= room) low = mid; else high = mid - 1;
    }
    return cut(low);
  }

  function drawLabels(first, scroll) {
    c.font = '12.5px system-ui, sans-serif';
    c.save();
    c.beginPath();
    c.rect(0, AXIS, width, height - AXIS);
    c.clip();
    for (let r = first; r < rows.length; r++) {
      const row = rows[r], y = row.y - scroll + AXIS;
      if (y > height) break;
      if (!row.lane) continue;
      const chosen = row.lane.i === app.lane;
      if (label) {
        c.fillStyle = chosen ? palette.select : r % 2 ? palette.band : palette.back;
        c.fillRect(0, y, label - 1, row.h);
        c.fillStyle = palette.text;
        const text = fitText(row.lane.n, label - 16);
        c.fillText(text, 8, y + row.h / 2 + .5);
      } else {
        const text = fitText(row.lane.n, width - 12);
        if (chosen) {
          c.fillStyle = palette.select;
          c.fillRect(0, y + 1, c.measureText(text).width + 12, NAME);
        }
        c.fillStyle = palette.text;
        c.fillText(text, 6, y + NAME / 2 + 1.5);
      }
    }
    if (label) {
      c.fillStyle = palette.line;
      c.fillRect(label - 1, AXIS, 1, height);
    }
    c.restore();
  }

  function drawAxis() {
    c.fillStyle = palette.back;
    c.fillRect(0, 0, width, AXIS);
    c.fillStyle = palette.line;
    c.fillRect(0, AXIS - 1, width, 1);
    c.font = '12px system-ui, sans-serif';
    if (label) {
      c.fillStyle = palette.soft;
      c.fillText(axis.order ? 'in order' : 'time', 8, AXIS - 11);
    }
    const taken = [];
    for (const f of axis.folds) { // how long a folded stretch is
      const mid = x((axis.u(f.from) + axis.u(f.to)) / 2), text = duration(f.to - f.from);
      const w = c.measureText(text).width;
      if (mid - w / 2 < label || mid + w / 2 > width || taken.some(([a, b]) => mid + w / 2 > a - 6 && mid - w / 2 < b + 6)) continue;
      taken.push([mid - w / 2, mid + w / 2]);
      c.fillStyle = palette.soft;
      c.fillText(text, mid - w / 2, AXIS - 11);
      c.fillRect(mid - w / 2, AXIS - 3, w, 2);
    }
    c.fillStyle = palette.text;
    for (const [px, t] of ticks(axis, u0, u1, x, 90)) {
      const text = offset(t), w = c.measureText(text).width;
      if (px < label || taken.some(([a, b]) => px + w + 4 > a - 4 && px < b + 6)) continue;
      c.fillRect(px, AXIS - 18, 1, 17);
      if (px + w + 4 < width) c.fillText(text, px + 4, AXIS - 11);
    }
    const end = [-1, -1]; // the actions' names, in one line
    actions.forEach((a, i) => {
      const px = x(a.u);
      if (px < label || px > width) return;
      const next = actions.slice(i + 1).map(b => x(b.u)).find(n => n > px + 4) ?? width;
      c.font = '600 12px system-ui, sans-serif';
      const number = a.x.match(/^action (\d+)/)?.[1] ?? '', short = a.x.replace(/^action (\d+) \((.*)\)$/, '$1 $2');
      const room = Math.min(next, width) - px - 14;
      const type = short.split(' ').slice(0, 2).join(' ');
      const text = [short, type].find(t => c.measureText(t).width <= room) ?? number;
      const w = c.measureText(text).width + 8;
      const left = Math.min(Math.max(px - 1, end[1] + 2), width - w);
      c.fillStyle = palette[looks[a.k].color];
      c.fillRect(left, 3, w, 18);
      c.fillRect(px - .7, 3, 1.4, AXIS);
      c.fillStyle = palette.back;
      c.fillText(text, left + 4, 12.5);
      end[1] = left + w;
    });
  }

  // at finds the item nearest to a place on the chart.
  function at(px, py) {
    if (py < AXIS) {
      return actions.find(a => Math.abs(x(a.u) - px) < 60 && px >= x(a.u) - 3) ?? null;
    }
    const y = py - AXIS + pane.scrollTop, r = search(rows.map(row => row.y), y), row = rows[r];
    if (!row?.lane || y > row.y + row.h) return null;
    let best = null, distance = 9;
    for (const item of row.lane.points) {
      const d = Math.abs(x(item.u) - px) - (looks[item.k].top ?? 0) * .1;
      if (d < distance) { distance = d; best = item; }
    }
    if (best) return best;
    const inside = row.lane.spans.filter(i => x(i.u) - 3 <= px && px <= x(i.v) + 3);
    const level = row.lane.levels > 1 ? Math.floor((y - row.y - head - 4) / 9) : 0;
    return inside.filter(i => looks[i.k].shape === 'bar' || looks[i.k].shape === 'span')
      .sort((a, b) => Math.abs(a.level - level) - Math.abs(b.level - level))[0] ?? inside[inside.length - 1] ?? {lane: row.lane};
  }

  // reveal brings an item into view.
  function reveal(item) {
    const row = rows[rowOf.get(item.l)];
    if (row) {
      const room = height - AXIS;
      if (row.y < pane.scrollTop) pane.scrollTop = row.y - GROUP;
      if (row.y + row.h > pane.scrollTop + room) pane.scrollTop = row.y + row.h - room + 8;
    }
    const w = u1 - u0;
    if (item.u < u0 + w * .02 || item.u > u1 - w * .02) show(item.u - w / 2, item.u + w / 2);
    changed();
  }

  const position = e => {
    const box = chart.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  };
  pane.addEventListener('wheel', e => {
    const [px] = position(e);
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) * .006), Math.max(px, label));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      const d = ((e.shiftKey && e.deltaX === 0 ? e.deltaY : e.deltaX) / (width - label)) * (u1 - u0);
      show(u0 + d, u1 + d);
    }
  }, {passive: false});
  const fingers = new Map();
  let dragged = false;
  pane.addEventListener('pointerdown', e => {
    fingers.set(e.pointerId, position(e));
    dragged = false;
  });
  pane.addEventListener('pointermove', e => {
    const now = position(e), before = fingers.get(e.pointerId);
    if (!before) { hover(now); return; }
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== e.pointerId)[1];
      const apart = p => Math.max(Math.abs(p[0] - other[0]), 10);
      zoom(apart(now) / apart(before), (now[0] + other[0]) / 2);
      dragged = true;
    } else if (dragged || Math.abs(now[0] - before[0]) > 4) {
      if (!dragged) pane.setPointerCapture(e.pointerId);
      dragged = true;
      tip.hidden = true;
      const d = (before[0] - now[0]) / (width - label) * (u1 - u0);
      show(u0 + d, u1 + d);
    } else {
      return;
    }
    fingers.set(e.pointerId, now);
  });
  for (const type of ['pointerup', 'pointercancel']) pane.addEventListener(type, e => fingers.delete(e.pointerId));
  pane.addEventListener('pointerleave', () => { tip.hidden = true; });
  pane.addEventListener('click', e => {
    if (dragged) return;
    const [px, py] = position(e), item = at(px, py);
    if (item?.x) app.choose(item);
    else if (px > label) app.setTime(axis.t(unit(px)), item?.lane);
  });
  pane.addEventListener('dblclick', e => zoom(3, Math.max(position(e)[0], label)));
  pane.addEventListener('scroll', changed, {passive: true});

  function hover([px, py]) {
    const item = px > label || py > AXIS ? at(px, py) : null;
    const text = item?.x ? `${offset(item.t)}${item.e > item.t ? `, for ${duration(item.e - item.t)}` : ''}  ${item.x}` :
      item?.lane && px < label ? item.lane.n : '';
    tip.hidden = !text;
    tip.textContent = text;
    tip.style.left = `${Math.min(px + 14, Math.max(width - 320, 8))}px`;
    tip.style.top = `${py > height - 90 ? py - 50 : py + 16}px`;
  }

  // step moves to a neighbour of the chosen item.
  function step(dx, dy) {
    const shown = rows.filter(r => r.lane && r.lane.points.length + r.lane.spans.length > 0).map(r => r.lane);
    let n = shown.findIndex(l => l.i === app.lane);
    if (n < 0) n = 0;
    else if (dy) n = Math.min(Math.max(n + dy, 0), shown.length - 1);
    if (!shown.length) return;
    const all = [...shown[n].points, ...shown[n].spans].filter(app.matches).sort((a, b) => a.t - b.t);
    if (!all.length) { app.lane = shown[n].i; changed(); return; }
    const i = all.indexOf(app.chosen), time = app.time ?? axis.t(u0);
    let next;
    if (dx === Infinity || dx === -Infinity) next = all[dx < 0 ? 0 : all.length - 1];
    else if (i >= 0) next = all[Math.min(Math.max(i + dx, 0), all.length - 1)];
    else next = all.reduce((best, item) => (Math.abs(item.t - time) < Math.abs(best.t - time) ? item : best));
    app.choose(next);
    live.textContent = `${shown[n].n}, ${offset(next.t)}: ${next.x}`;
  }
  pane.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const keys = {
      ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0), ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1),
      Home: () => step(-Infinity, 0), End: () => step(Infinity, 0), '+': () => zoom(1.5), '=': () => zoom(1.5),
      '-': () => zoom(1 / 1.5), 0: () => show(axis.low, axis.high), Enter: () => document.getElementById('details').focus(),
    };
    if (keys[e.key]) {
      e.preventDefault();
      keys[e.key]();
    }
  });
  new ResizeObserver(resize).observe(chart);
  const repaint = () => { palette = colors(); changed(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  matchMedia('print').addEventListener('change', () => { palette = colors(); resize(); draw(); });

  return {
    setAxis, layout, changed, zoom, reveal, show,
    fit: () => show(axis.low, axis.high),
    around: t => { const u = axis.u(t), w = u1 - u0; if (u < u0 || u > u1) show(u - w / 2, u + w / 2); },
    view: () => ({x, u: t => axis.u(t), left: label, width, u0, u1}),
    // Where an item is drawn, in pixels from the chart's corner.
    x: item => x(item.u),
    y: item => { const row = rows[rowOf.get(item.l)]; return row.y + head + (row.h - head) / 2 - pane.scrollTop + AXIS; },
  };
}
