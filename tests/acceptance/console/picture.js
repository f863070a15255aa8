// What stands on a page, from the back to the front: rectangles and lines of text (picture.py draws them).
() => {
  const shapes = [];
  const isSeen = ({ x, y, width, height }) => width > 0 && height > 0 && x < innerWidth && y < innerHeight && x + width > 0 && y + height > 0;
  const box = (rect, more) => shapes.push({ x: rect.x, y: rect.y, width: rect.width, height: rect.height, fill: "none", stroke: "", radius: 0,
    text: "", size: 0, weight: "", family: "", ...more });
  const opaque = colour => colour !== "rgba(0, 0, 0, 0)" && colour !== "transparent";
  const clipOf = element => {
    let clip = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflow === "visible") continue;
      const rect = at.getBoundingClientRect();
      clip = { left: Math.max(clip.left, rect.left), top: Math.max(clip.top, rect.top), right: Math.min(clip.right, rect.right),
        bottom: Math.min(clip.bottom, rect.bottom) };
    }
    return clip;
  };
  const line = (text, rect, style) => box(rect, { text, fill: style.color, size: parseFloat(style.fontSize), weight: style.fontWeight,
    family: /mono/i.test(style.fontFamily) ? "mono" : "sans" });
  const words = node => {
    const clip = clipOf(node.parentElement);
    const style = getComputedStyle(node.parentElement);
    const capital = style.textTransform === "capitalize";
    let current = null;
    const end = () => {
      if (current) line(capital ? current.text.replace(/\b\w/g, sign => sign.toUpperCase()) : current.text, current.rect, style);
      current = null;
    };
    for (const { 0: word, index } of node.data.matchAll(/\S+\s*/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.trimEnd().length);
      const rect = range.getBoundingClientRect();
      if (!isSeen(rect) || rect.top < clip.top - 1 || rect.bottom > clip.bottom + 1) { end(); continue; }
      if (rect.right > clip.right + 1) { if (current) current.text += " …"; end(); break; }
      if (current && Math.abs(current.rect.y - rect.y) < 3) {
        current.text += " " + word.trimEnd();
        current.rect = { ...current.rect, width: rect.right - current.rect.x };
      } else {
        end();
        current = { text: word.trimEnd(), rect: { x: rect.x, y: rect.y, width: rect.width, height: rect.height } };
      }
    }
    end();
  };
  const walk = element => {
    const style = getComputedStyle(element);
    const rect = element.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || style.opacity === "0" || element.matches(".visually-hidden, .skip")) return;
    const clip = clipOf(element.parentElement);
    const x = Math.max(rect.left, clip.left), y = Math.max(rect.top, clip.top);
    const cut = { x, y, width: Math.min(rect.right, clip.right) - x, height: Math.min(rect.bottom, clip.bottom) - y };
    if (isSeen(cut) && element.tagName !== "rect") {
      const border = parseFloat(style.borderTopWidth) && opaque(style.borderTopColor) ? style.borderTopColor : "";
      if (opaque(style.backgroundColor) || border)
        box(cut, { fill: opaque(style.backgroundColor) ? style.backgroundColor : "none", stroke: border, radius: parseFloat(style.borderTopLeftRadius) || 0 });
      const below = parseFloat(style.borderBottomWidth) && opaque(style.borderBottomColor);
      if (below && !border && rect.bottom <= clip.bottom) box({ ...cut, y: rect.bottom - 1, height: parseFloat(style.borderBottomWidth) }, { fill: style.borderBottomColor });
      const right = parseFloat(style.borderRightWidth) && opaque(style.borderRightColor);
      if (right && !border) box({ ...cut, x: rect.right - 1, width: 1 }, { fill: style.borderRightColor });
    }
    if (element.tagName === "rect" && isSeen(cut)) box(cut, { fill: style.fill });
    const told = element.matches("select") ? element.selectedOptions[0]?.text : element.matches("input, textarea") ? element.value || element.placeholder : "";
    if (told && isSeen(cut)) line(told, { x: rect.x + 8, y: rect.y + 4, width: 0, height: rect.height - 8 }, style);
    if (!element.matches("select, input, textarea"))
      for (const child of element.childNodes) child.nodeType === Node.TEXT_NODE ? words(child) : child.nodeType === Node.ELEMENT_NODE && walk(child);
  };
  walk(document.body);
  return shapes;
}
