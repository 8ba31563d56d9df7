import {block, offset} from './data.js';
import {search} from './axis.js';
import {looks, isSpan, colors, drawPoint, drawSpan} from './look.js';
import {timeline} from './timeline.js';
import {details} from './details.js';
import {versions} from './versions.js';
import {list} from './list.js';

const $ = id => document.getElementById(id);

async function main() {
  const data = await block('data');
  const logs = data.logs ?? [];
  let needle = '', onlyObject = -1, others = false;
  let hits = data.items, log = null, logLines = [], chart, shapes;

  // app is what the parts of the page share: what is chosen, and what is left over by search and filters.
  const app = {
    chosen: null, lane: -1, time: null,
    isShown(lane) {
      if (lane.o >= 0) {
        if (onlyObject >= 0) return lane.o === onlyObject;
        if (!data.objects[lane.o].a && !others) return false;
      }
      return true;
    },
    matches: item => item.hit !== false,
    choose(item) {
      app.chosen = item;
      app.lane = item.l;
      document.querySelector('.stage').classList.add('chosen');
      app.setTime(item.t);
      chart.reveal(item);
      show(item);
      const at = hits.indexOf(item);
      if (at >= 0) eventList.near(at);
    },
    setTime(t, lane) {
      app.time = t;
      if (lane) { app.lane = lane.i; app.chosen = null; }
      chart.around(t);
      chart.changed();
      if (log) logList.near(Math.max(search(logLines.map(i => log.t[i]), t), 0));
      if (lane) eventList.near(Math.max(search(hits.map(i => i.t), t), 0));
    },
    setObject(o) {
      $('object').value = o < 0 ? '' : o;
      onlyObject = o;
      filter();
    },
    hasVersions: o => shapes.has(o),
    showVersions(o) { shapes.show(o); $('versions').scrollIntoView({block: 'nearest'}); },
    showLogs() { $('logs').scrollIntoView({block: 'nearest'}); },
    moved() { shapes?.draw(); },
    view: () => chart.view(),
  };

  $('tools').hidden = $('events').hidden = false;
  chart = timeline(data, app);
  shapes = versions(data, app);
  const show = details(data, app);
  const eventList = list($('events-list'), {rows: i => [offset(hits[i].t), hits[i].x], choose: i => app.choose(hits[i])});

  function filter() {
    const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
    const everywhere = new Set(['action', 'actionfailed', 'finding', 'cause', 'workload', 'step', 'process', 'kill', 'exit', 'start', 'leader', 'pause', 'calm']);
    let found = 0;
    for (const item of data.items) {
      const about = onlyObject < 0 || item.o === onlyObject || everywhere.has(item.k) ||
        item.k === 'reconcile' && data.objects[onlyObject].k.endsWith(`/${item.x.split(' ').pop()}`);
      const text = words.length ? `${data.lanes[item.l].n} ${item.x} ${(item.d ?? []).join(' ')}`.toLowerCase() : '';
      item.hit = about && words.every(w => text.includes(w));
      if (item.hit) found++;
    }
    hits = data.items.filter(i => i.hit && !isBackground(i.k) && (i.o < 0 || others || data.lanes[i.l].o < 0 || data.objects[i.o].a));
    $('hits').textContent = words.length ? `${found} found` : '';
    $('events-count').textContent = `${hits.length} of ${data.items.length}.`;
    eventList.resize(hits.length);
    chart.layout();
  }
  const isBackground = kind => kind === 'life' || kind === 'process' || kind === 'workload';

  // The choices above the timeline.
  data.objects.map((o, i) => [o, i]).filter(([o]) => o.l >= 0 && o.a).sort(([a], [b]) => (a.k < b.k ? -1 : 1))
    .forEach(([o, i]) => $('object').append(new Option(o.k, i)));
  const more = data.objects.filter(o => o.l >= 0 && !o.a).length;
  $('unasked-label').hidden = more === 0;
  $('unasked-label').querySelector('span').textContent = `${more} objects that nobody asked for`;
  $('unasked').addEventListener('change', e => { others = e.target.checked; filter(); });
  $('object').addEventListener('change', e => app.setObject(e.target.value === '' ? -1 : +e.target.value));
  $('search').addEventListener('input', e => { needle = e.target.value; filter(); });
  $('search').addEventListener('keydown', e => {
    if (e.key !== 'Enter' || !hits.length) return;
    const at = hits.indexOf(app.chosen);
    app.choose(hits[(at + (e.shiftKey ? hits.length - 1 : 1)) % hits.length]);
  });
  const setAxis = () => {
    const order = document.querySelector('input[name=axis]:checked').value === 'order';
    $('fold').disabled = order;
    chart.setAxis({order, fold: $('fold').checked});
  };
  for (const input of document.querySelectorAll('input[name=axis], #fold')) input.addEventListener('change', setAxis);
  $('in').addEventListener('click', () => chart.zoom(1.6));
  $('out').addEventListener('click', () => chart.zoom(1 / 1.6));
  $('fit').addEventListener('click', () => chart.fit());

  // Times in the text lead to the timeline.
  document.addEventListener('click', e => {
    const link = e.target.closest('a[data-ms]');
    if (!link) return;
    e.preventDefault();
    const event = +link.dataset.event, item = event ? data.items.find(i => i.q?.includes(event)) : null;
    $('timeline').scrollIntoView({block: 'start'});
    if (item) app.choose(item); else app.setTime(+link.dataset.ms, {i: -1});
    $('pane').focus({preventScroll: true});
  });

  // The logs.
  const logList = list($('log-list'), {
    rows: i => [offset(log.t[logLines[i]]), log.x[logLines[i]]],
    choose: i => { app.time = log.t[logLines[i]]; chart.around(app.time); chart.changed(); },
  });
  const sift = () => {
    const words = $('log-search').value.toLowerCase();
    logLines = [...log.x.keys()].filter(i => log.x[i].toLowerCase().includes(words));
    $('log-count').textContent = words ? `${logLines.length} of ${log.x.length} lines` : `${log.x.length} lines`;
    logList.resize(logLines.length);
    if (app.time !== null) logList.near(Math.max(search(logLines.map(i => log.t[i]), app.time), 0));
  };
  const openLog = async () => { log = await block(`log-${$('log').value}`); sift(); };
  if (logs.length) {
    $('logs').hidden = false;
    logs.forEach((l, i) => $('log').append(new Option(`${l.n} (${l.c} lines)`, i)));
    $('log').addEventListener('change', openLog);
    $('log-search').addEventListener('input', sift);
    // Most readers look at no log; the first is read when it comes near.
    new IntersectionObserver((seen, me) => { if (seen.some(s => s.isIntersecting)) { me.disconnect(); openLog(); } },
      {rootMargin: '600px'}).observe($('logs'));
  }

  legend();
  setAxis();
  filter();
  document.documentElement.dataset.ready = performance.now().toFixed(0);
  window.trommel = {data, app, chart}; // for measurements

  function legend() {
    const used = new Set(data.items.map(i => i.k)), palette = colors(), ratio = window.devicePixelRatio || 1;
    for (const [kind, look] of Object.entries(looks)) {
      if (!used.has(kind)) continue;
      const canvas = Object.assign(document.createElement('canvas'), {width: 26 * ratio, height: 20 * ratio});
      canvas.style.width = '26px';
      canvas.style.height = '20px';
      const c = canvas.getContext('2d');
      c.scale(ratio, ratio);
      if (isSpan(kind)) drawSpan(c, look, palette, 1, 25, 1, 18); else drawPoint(c, look, palette, 13, 10);
      const item = document.createElement('li');
      item.append(canvas, look.name);
      $('legend').append(item);
    }
  }
}

main();
