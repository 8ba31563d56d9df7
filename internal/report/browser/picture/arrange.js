// Leaves only what the picture shows.
(() => {
  const picture = document.createElement('div');
  picture.id = 'picture';
  picture.style = 'position: absolute; top: 0; left: 0; width: 1160px; padding: 14px; background: var(--back)';
  document.querySelectorAll('#versions-lines input').forEach(e => e.remove());
  const text = (tag, words) => Object.assign(document.createElement(tag), {textContent: words});
  const versions = document.getElementById('versions');
  const title = text('p', 'Who had which version of ' + document.getElementById('versions-object').selectedOptions[0].text);
  versions.querySelectorAll('h2, p').forEach(e => e.remove());
  versions.prepend(title);
  versions.style = 'padding-left: 1px'; // the chart's border
  picture.append(document.querySelector('h1'), document.querySelector('.headline'), document.getElementById('chart'), versions);
  document.body.replaceChildren(picture);
  scrollTo(0, 0);
})()
