// A table row. Its cells are data, so a change is one small message and the focus stays.
const h = Vue.h;

function cell(column, [text, tone = "", href = "", share = null], first) {
  const toneClass = tone && `tone-${tone}`;
  const outer = {
    class: [column.number ? "number" : column.wide ? "wide" : "", share === null ? "" : "share"],
    style: share === null ? null : { "--share": `${share}%` },
    "data-label": column.label,
    scope: first ? "row" : null,
  };
  const tag = first ? "th" : "td";
  if (column.badge) return h(tag, outer, h("span", { class: text === "-" ? toneClass : ["badge", toneClass] }, text));
  if (column.link) return h(tag, outer, h("a", { href: href || null, class: toneClass }, text));
  if (column.brief) return h(tag, outer, h("span", { class: ["clamp", toneClass], title: text }, text));
  return h(tag, { ...outer, class: [...outer.class, toneClass] }, text);
}

export default {
  props: { cells: Array },
  inject: ["columns"],
  render() {
    return h("tr", this.columns.map((column, number) => cell(column, this.cells[number], number === 0)));
  },
};
