const HEIGHT = 20;

// list is a long list of lines of which only the visible ones are in the document. rows(i) returns [time, text].
export function list(box, {rows, choose}) {
  const inner = Object.assign(document.createElement('div'), {className: 'inner'});
  box.append(inner);
  let count = 0, near = -1, waiting = false, widest = 0;
  function draw() {
    waiting = false;
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 5);
    const last = Math.min(count, first + Math.ceil(box.clientHeight / HEIGHT) + 12);
    const lines = [];
    for (let i = first; i < last; i++) {
      const [time, text] = rows(i);
      const line = Object.assign(document.createElement('div'), {className: i === near ? 'row near' : 'row', id: `${box.id}-${i}`});
      line.setAttribute('role', 'option');
      line.setAttribute('aria-selected', i === near);
      line.setAttribute('aria-setsize', count);
      line.setAttribute('aria-posinset', i + 1);
      line.style.top = `${i * HEIGHT}px`;
      line.append(Object.assign(document.createElement('span'), {className: 't', textContent: time}), ` ${text}`);
      line.addEventListener('click', () => pick(i));
      widest = Math.max(widest, text.length);
      lines.push(line);
    }
    inner.replaceChildren(...lines);
    inner.style.width = `max(100%, ${Math.min(widest + 16, 3000)}ch)`;
  }
  function changed() {
    if (!waiting) { waiting = true; requestAnimationFrame(draw); }
  }
  function pick(i) {
    if (i < 0 || i >= count) return;
    near = i;
    changed();
    box.setAttribute('aria-activedescendant', `${box.id}-${i}`);
    choose(i);
  }
  box.addEventListener('scroll', changed, {passive: true});
  box.addEventListener('keydown', e => {
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15}[e.key];
    if (!step) return;
    e.preventDefault();
    const i = Math.min(Math.max(near + step, 0), count - 1);
    reveal(i);
    pick(i);
  });
  function reveal(i) {
    const top = i * HEIGHT;
    if (top < box.scrollTop || top + HEIGHT > box.scrollTop + box.clientHeight - 20) box.scrollTop = top - box.clientHeight / 3;
  }
  new ResizeObserver(changed).observe(box);
  return {
    resize(n) {
      count = n;
      near = -1;
      widest = 0;
      inner.style.height = `${n * HEIGHT}px`;
      changed();
    },
    near(i) {
      near = i;
      if (i >= 0) reveal(i);
      changed();
    },
  };
}
