// How each kind of item looks. Kinds differ in shape as well as in colour.

export const looks = {
  action: {shape: 'flag', color: 'purple', name: 'an action of the plan: a line through all lanes', top: 5},
  actionfailed: {shape: 'flag', color: 'red', name: 'an action that failed', top: 5},
  finding: {shape: 'alarm', color: 'red', name: 'a finding was noticed', top: 9},
  cause: {shape: 'ring', color: 'red', name: 'what a finding is about begins', top: 8},
  hold: {shape: 'bar', color: 'hold', fill: 'hold-fill', name: 'a call or an event is held'},
  pause: {shape: 'band', color: 'hold', fill: 'pause', name: 'a pause is in force'},
  failing: {shape: 'band', color: 'red', fill: 'pause', name: 'calls are made to fail'},
  frozen: {shape: 'band', color: 'blue', fill: 'pause', name: 'a process is frozen'},
  process: {shape: 'area', color: 'process', name: 'a process runs'},
  workload: {shape: 'area', color: 'work', name: 'the workload runs'},
  step: {shape: 'span', color: 'soft', name: 'a step of the workload'},
  kill: {shape: 'cross', color: 'red', name: 'a process is killed', top: 7},
  exit: {shape: 'cross', color: 'amber', name: 'a process exits on its own', top: 7},
  start: {shape: 'right', color: 'green', name: 'a process starts', top: 6},
  leader: {shape: 'star', color: 'amber', name: 'another process leads', top: 8},
  reconcile: {shape: 'span', color: 'blue', name: 'a reconcile'},
  sees: {shape: 'tick', color: 'blue', name: 'an API server sees an event'},
  receives: {shape: 'tick', color: 'teal', name: 'a controller receives an event'},
  reads: {shape: 'ring', color: 'teal', name: 'a read'},
  writes: {shape: 'diamond', color: 'green', name: 'a write', top: 2},
  failed: {shape: 'diamond', color: 'amber', name: 'a write that failed', top: 3, hollow: true},
  refused: {shape: 'cross', color: 'red', name: 'the plan made a call fail', top: 6},
  stale: {shape: 'warning', color: 'amber', name: 'a stale read', top: 8},
  election: {shape: 'dot', color: 'soft', name: 'leader election'},
  call: {shape: 'dot', color: 'blue', name: 'an annotated call'},
  life: {shape: 'thin', color: 'process', name: 'an object exists'},
  existing: {shape: 'dot', color: 'soft', name: 'an object existed before'},
  created: {shape: 'up', color: 'green', name: 'created', top: 3},
  updated: {shape: 'disc', color: 'blue', name: 'updated', top: 1},
  marked: {shape: 'down', color: 'amber', name: 'marked for deletion', top: 4},
  deleted: {shape: 'cross', color: 'red', name: 'deleted', top: 5},
  calm: {shape: 'ring', color: 'soft', name: 'nothing disturbs the controllers from here on', top: 1},
};

// Spans are drawn over their whole length, beneath the others.
export const isSpan = kind => ['bar', 'band', 'area', 'span', 'thin'].includes(looks[kind].shape);

export function colors() {
  const style = getComputedStyle(document.documentElement);
  const names = ['text', 'soft', 'line', 'back', 'band', 'head', 'link', 'red', 'green', 'amber', 'purple', 'blue', 'teal',
    'hold', 'hold-fill', 'select', 'select-line', 'process', 'work', 'pause'];
  return Object.fromEntries(names.map(n => [n, style.getPropertyValue(`--${n}`).trim()]));
}

// drawPoint draws the mark of a moment around a place.
export function drawPoint(c, look, palette, x, y) {
  c.fillStyle = c.strokeStyle = palette[look.color];
  c.lineWidth = 1.8;
  const polygon = points => {
    c.beginPath();
    points.forEach(([dx, dy], i) => (i ? c.lineTo(x + dx, y + dy) : c.moveTo(x + dx, y + dy)));
    c.closePath();
    if (look.hollow) c.stroke(); else c.fill();
  };
  switch (look.shape) {
  case 'tick': c.fillRect(x - 1.5, y - 6, 3, 12); break;
  case 'dot': c.beginPath(); c.arc(x, y, 2, 0, 7); c.fill(); break;
  case 'disc': c.beginPath(); c.arc(x, y, 4.2, 0, 7); c.fill(); break;
  case 'ring': c.beginPath(); c.arc(x, y, 3.8, 0, 7); c.stroke(); break;
  case 'diamond': polygon([[0, -5.5], [5, 0], [0, 5.5], [-5, 0]]); break;
  case 'up': polygon([[0, -5.5], [5.5, 4.5], [-5.5, 4.5]]); break;
  case 'down': polygon([[0, 5.5], [5.5, -4.5], [-5.5, -4.5]]); break;
  case 'right': polygon([[5, 0], [-4, -5.5], [-4, 5.5]]); break;
  case 'cross':
    c.lineWidth = 2.6;
    c.beginPath();
    c.moveTo(x - 4.5, y - 4.5); c.lineTo(x + 4.5, y + 4.5); c.moveTo(x + 4.5, y - 4.5); c.lineTo(x - 4.5, y + 4.5);
    c.stroke();
    break;
  case 'star': {
    const points = [];
    for (let i = 0; i < 10; i++) {
      const r = i % 2 ? 2.8 : 6.5, a = i * Math.PI / 5;
      points.push([r * Math.sin(a), -r * Math.cos(a)]);
    }
    polygon(points);
    break;
  }
  case 'warning':
  case 'alarm':
    if (look.shape === 'alarm') { c.beginPath(); c.arc(x, y, 7, 0, 7); c.fill(); } else polygon([[0, -7.5], [8, 6], [-8, 6]]);
    c.fillStyle = palette.back;
    c.fillRect(x - 1, y - 4, 2, 5); c.fillRect(x - 1, y + 2.4, 2, 2);
    break;
  case 'flag': c.fillRect(x - 1.5, y - 8, 3, 16); polygon([[1, -8], [8, -4.5], [1, -1]]); break;
  }
}

// drawSpan draws the bar of a span; lanes whose spans overlap have several levels.
export function drawSpan(c, look, palette, x0, x1, top, height) {
  const w = Math.max(x1 - x0, 2);
  switch (look.shape) {
  case 'area': c.fillStyle = palette[look.color]; c.fillRect(x0, top + 3, w, height - 6); break;
  case 'thin': c.fillStyle = palette[look.color]; c.fillRect(x0, top + height / 2 - 2, w, 4); break;
  case 'band':
    c.fillStyle = palette[look.fill]; c.fillRect(x0, top, w, height);
    c.fillStyle = palette[look.color]; c.fillRect(x0, top, w, 2); c.fillRect(x0, top + height - 2, w, 2);
    break;
  case 'bar':
    c.fillStyle = palette[look.fill]; c.fillRect(x0, top + 4, w, height - 8);
    c.strokeStyle = palette[look.color]; c.lineWidth = 1.6;
    c.strokeRect(x0 + .5, top + 4.5, Math.max(w - 1, 1), height - 9);
    break;
  case 'span':
    c.fillStyle = palette[look.color]; c.globalAlpha = .28; c.fillRect(x0, top + 1, w, height - 2); c.globalAlpha = 1;
    c.fillRect(x0, top + height - 3, w, 2); c.fillRect(x0, top + 1, 1.5, height - 2);
    break;
  }
}
