// Runs inside a report that the test opens in a frame: what a reader would see, as a message to the page around it.
(() => {
  const out = {};
  const all = s => [...document.querySelectorAll(s)];
  for (const d of all('details')) d.open = true;
  out.width = innerWidth;
  out.scroll = document.documentElement.scrollWidth;
  out.dark = matchMedia('(prefers-color-scheme: dark)').matches;
  out.curves = all('path.curve').filter(p => p.getTotalLength() > 0).length;
  out.dots = all('path.dot').length;
  out.bands = all('path.m').filter(p => p.getBBox().width > 0).length;
  out.blocks = all('rect.m').length;
  out.rows = all('tbody tr').map(r => [...r.cells].map(c => c.textContent.trim()));
  out.outside = all('[href],[src]').length + performance.getEntriesByType('resource').length;
  out.scripts = document.scripts.length;

  // Text over text: pairs of labels of one chart whose boxes overlap by more than a pixel.
  out.overlaps = [];
  for (const plot of all('.plot')) {
    const boxes = [...plot.querySelectorAll('span')].map(s => {
      const range = document.createRange(); // of the text, without padding
      range.selectNodeContents(s);
      return [s.textContent, range.getBoundingClientRect()];
    }).filter(b => b[0] && b[1].width && b[1].height);
    boxes.forEach(([name, a], i) => boxes.slice(0, i).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        out.overlaps.push(name + ' | ' + other);
    }));
    for (const [name, b] of boxes)
      if (b.left < -1 || b.right > innerWidth + 1) out.overlaps.push(name + ' | the edge of the page');
  }

  // Contrast by WCAG 2: relative luminances of a color and of the paper.
  const rgb = c => c.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = c => {
    const [r, g, b] = rgb(c).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const contrast = c => {
    const l = light(c);
    return (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05);
  };
  out.text = Math.min(...all('p,h1,h2,h3,td,th,li,summary,.plot span').filter(e => e.textContent)
    .map(e => contrast(getComputedStyle(e).color)));
  out.lines = Math.min(99, ...all('path.curve,path.dot').map(e => contrast(getComputedStyle(e).stroke)));

  // What is there under the pointer.
  const map = all('.map').pop();
  if (map) {
    const r = map.getBoundingClientRect();
    map.dispatchEvent(new PointerEvent('pointermove', {clientX: r.left + r.width / 2, clientY: r.top + 5}));
    out.named = [...map.closest('.plan').querySelectorAll('.now li')].map(l => l.textContent);
  }
  out.title = document.title;
  parent.postMessage(JSON.stringify(out), '*');
})();
