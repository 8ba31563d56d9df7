// The axis maps times to units of its length, piece by piece: evenly, with idle stretches folded, or by order.

// search returns the index of the last number that is not larger; -1: there is none.
export function search(numbers, x) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (numbers[mid] <= x) low = mid + 1; else high = mid;
  }
  return low - 1;
}

// Times have no duplicates and are sorted. folds are the pieces that are shorter than their time.
export function makeAxis(times, from, to, {order, fold}) {
  let ts = [], us = [], folds = [];
  if (order) {
    ts = times.slice();
    us = ts.map((_, i) => i);
  } else {
    const all = [from, ...times.filter(t => t > from && t < to), to];
    const idle = Math.max(300, (to - from) * 0.02);
    let active = 0;
    for (let i = 1; i < all.length; i++) if (all[i] - all[i - 1] <= idle) active += all[i] - all[i - 1];
    const width = Math.max(active * 0.03, 1);
    ts = [from];
    us = [0];
    for (let i = 1; i < all.length; i++) {
      const gap = all[i] - all[i - 1], folded = fold && gap > idle && width < gap;
      if (folded) {
        if (ts[ts.length - 1] !== all[i - 1]) {
          us.push(us[us.length - 1] + all[i - 1] - ts[ts.length - 1]);
          ts.push(all[i - 1]);
        }
        folds.push({from: all[i - 1], to: all[i]});
        ts.push(all[i]);
        us.push(us[us.length - 1] + width);
      }
    }
    if (ts[ts.length - 1] !== to) {
      us.push(us[us.length - 1] + to - ts[ts.length - 1]);
      ts.push(to);
    }
  }
  if (ts.length < 2) {
    ts = [from, to];
    us = [0, 1];
  }
  const map = (a, b, x) => {
    let i = Math.min(Math.max(search(a, x), 0), a.length - 2);
    return b[i] + (x - a[i]) / (a[i + 1] - a[i]) * (b[i + 1] - b[i]);
  };
  const first = us[0], last = us[us.length - 1], margin = (last - first) * 0.015;
  return {
    order, folds, low: first - margin, high: last + margin,
    u: t => map(ts, us, t),
    t: u => map(us, ts, Math.min(Math.max(u, first), last)),
  };
}

const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000];

// ticks returns [x, time] of the labels between two units, at least some pixels apart.
export function ticks(axis, u0, u1, x, room) {
  const out = [];
  const width = x(u1) - x(u0);
  if (axis.order) {
    const each = Math.max(1, Math.ceil((u1 - u0) / (width / room)));
    for (let u = Math.ceil(Math.max(u0, 0) / each) * each; u <= Math.min(u1, axis.high); u += each) {
      out.push([x(u), axis.t(u)]);
    }
    return out;
  }
  const step = steps.find(s => s / (u1 - u0) * width >= room) ?? 600000;
  const inFold = t => axis.folds.some(f => t > f.from && t < f.to);
  let last = -Infinity;
  const begin = axis.t(u0), end = axis.t(u1);
  const cuts = [...axis.folds.filter(f => f.to > begin && f.from < end), {from: end, to: end}];
  let from = begin;
  for (const cut of cuts) {
    for (let n = Math.ceil(from / step); n * step <= cut.from; n++) {
      const at = x(axis.u(n * step));
      if (!inFold(n * step) && at - last >= room * 0.75) {
        out.push([at, n * step]);
        last = at;
      }
    }
    from = cut.to;
  }
  return out;
}
