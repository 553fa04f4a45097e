// The body of a table. Its rows inject the columns from it.
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
    // A moved row loses the focus.
    if (this.focused?.isConnected && document.activeElement !== this.focused) {
      this.focused.focus({ preventScroll: true });
    }
  },
  render() {
    return Vue.h("tbody", this.$slots.default?.());
  },
};
