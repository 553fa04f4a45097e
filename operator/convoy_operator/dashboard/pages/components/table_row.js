// One line of a table. Its cells are data, so that a change is one small message, and focus stays where it is.
const h = Vue.h;

function cell(column, [text, tone = "", href = "", share = null], first) {
  const mood = tone && `tone-${tone}`;
  const outer = {
    class: [column.number ? "number" : column.wide ? "wide" : "", share === null ? "" : "share"],
    style: share === null ? null : { "--share": `${share}%` },
    "data-label": column.label,
    scope: first ? "row" : null,
  };
  const tag = first ? "th" : "td";
  if (column.badge) return h(tag, outer, h("span", { class: text === "-" ? mood : ["badge", mood] }, text));
  if (column.link) return h(tag, outer, h("a", { href: href || null, class: mood }, text));
  if (column.brief) return h(tag, outer, h("span", { class: ["clamp", mood], title: text }, text));
  return h(tag, { ...outer, class: [...outer.class, mood] }, text);
}

export default {
  props: { cells: Array },
  inject: ["columns"],
  render() {
    return h("tr", this.columns.map((column, number) => cell(column, this.cells[number], number === 0)));
  },
};
