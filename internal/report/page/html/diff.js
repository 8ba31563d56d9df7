// What differs between two states of an object, as lines of path = value.

export function flatten(value, path = '', lines = new Map()) {
  const empty = value !== null && typeof value === 'object' && Object.keys(value).length === 0;
  if (value === null || typeof value !== 'object' || empty) {
    lines.set(path, JSON.stringify(value));
  } else if (Array.isArray(value)) {
    value.forEach((item, i) => flatten(item, `${path}[${i}]`, lines));
  } else {
    for (const key of Object.keys(value).sort()) {
      flatten(value[key], path ? `${path}.${key}` : key, lines);
    }
  }
  return lines;
}

// difference returns [sign, line] pairs; the resource version differs always and is left out.
export function difference(before, after) {
  const old = flatten(before), now = flatten(after), lines = [];
  const skip = path => path === 'metadata.resourceVersion' || path === 'metadata.generation';
  for (const path of new Set([...old.keys(), ...now.keys()])) {
    if (skip(path) || old.get(path) === now.get(path)) continue;
    if (old.has(path)) lines.push(['-', `${path} = ${old.get(path)}`]);
    if (now.has(path)) lines.push(['+', `${path} = ${now.get(path)}`]);
  }
  return lines;
}
