// The body of a table. Its lines learn from it what the columns are.
export default {
  props: { columns: Array },
  provide() {
    return { columns: this.columns };
  },
  render() {
    return Vue.h("tbody", this.$slots.default?.());
  },
};
