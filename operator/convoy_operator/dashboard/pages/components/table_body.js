// The body of a table. Its lines learn from it what the columns are.
export default {
  props: { columns: Array },
  provide() {
    return { columns: this.columns };
  },
  beforeUpdate() {
    const one = document.activeElement;
    this.focused = this.$el.contains(one) ? one : null;
  },
  updated() {
    // A line that is moved to another place loses the focus on its way.
    if (this.focused?.isConnected && document.activeElement !== this.focused) {
      this.focused.focus({ preventScroll: true });
    }
  },
  render() {
    return Vue.h("tbody", this.$slots.default?.());
  },
};
