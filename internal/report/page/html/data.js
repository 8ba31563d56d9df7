// The page's data: compressed JSON in elements of their own.

function bytes(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), all = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) all[i] = raw.charCodeAt(i);
  return all;
}

const blocks = new Map();

// block reads the block with that ID, once.
export function block(id) {
  if (!blocks.has(id)) {
    const zipped = new Blob([bytes(document.getElementById(id).textContent)]);
    blocks.set(id, new Response(zipped.stream().pipeThrough(new DecompressionStream('gzip'))).json());
  }
  return blocks.get(id);
}

// stateOf reads a state of an object.
export async function stateOf(data, i) {
  return (await block(`states-${Math.floor(i / data.chunk)}`))[i % data.chunk];
}

// offset writes milliseconds as the page's times: +1.25s.
export function offset(ms) {
  const sign = ms < 0 ? '-' : '+', n = Math.abs(ms);
  if (n >= 60000) return `${sign}${Math.floor(n / 60000)}m${((n % 60000) / 1000).toFixed(1)}s`;
  if (n >= 1000) return `${sign}${(n / 1000).toFixed(2)}s`;
  if (n >= 1 || n === 0) return `${sign}${n.toFixed(0)}ms`;
  return `${sign}${(n * 1000).toFixed(0)}µs`;
}

export function duration(ms) { return offset(ms).slice(1); }
