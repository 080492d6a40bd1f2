// The defects of a report in the window as it is: texts that are cut off or hard to read.
(() => {
  const defects = [];
  const name = (one) => `${one.tagName} ${one.className?.baseVal ?? one.className}: ` +
    one.textContent.trim().slice(0, 60);
  const isShown = (one) => one.checkVisibility() && one.getClientRects().length > 0;
  const isText = (one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());

  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) defects.push(`the page is ${page.scrollWidth} wide`);
  for (const one of document.querySelectorAll("main *")) {
    if (one.closest("svg, .table, .modebar-container") || !isShown(one)) continue;
    if (one.clientWidth && one.scrollWidth > one.clientWidth + 1) {
      defects.push(`cut off at ${one.clientWidth} of ${one.scrollWidth}: ${name(one)}`);
    }
  }
  for (const one of document.querySelectorAll(".table")) {
    if (matchMedia("print").matches && one.scrollWidth > one.clientWidth + 1) {
      defects.push(`a table is cut off at ${one.clientWidth} of ${one.scrollWidth}: ${name(one)}`);
    }
  }
  for (const text of document.querySelectorAll(".plot svg.main-svg text")) {
    if (!isShown(text) || !text.textContent.trim()) continue;
    const own = text.getBoundingClientRect();
    const whole = text.closest(".plot").getBoundingClientRect();
    const isInside = own.left >= whole.left - 1 && own.right <= whole.right + 1 &&
      own.top >= whole.top - 1 && own.bottom <= whole.bottom + 1;
    if (!isInside) defects.push(`outside its chart: ${name(text)}`);
  }

  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const background = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const [r, g, b, alpha = 1] = numbers(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const one of document.querySelectorAll("main *")) {
    if (!isText(one) || !isShown(one) || one.closest("style, script")) continue;
    const style = getComputedStyle(one);
    const color = numbers(one.closest("svg") ? style.fill : style.color).slice(0, 3);
    const [low, high] = [luminance(color), luminance(background(one))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) defects.push(`contrast ${contrast.toFixed(1)}: ${name(one)}`);
  }
  return defects;
})()
