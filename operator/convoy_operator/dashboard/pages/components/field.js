// A native input or select. The browser handles its label, focus and keys.
export default {
  props: { label: String, kind: String, choices: Array, hint: String, start: String, anchor: String, least: Number, most: Number },
  emits: ["changed"],
  data() {
    return { value: this.start ?? "" };
  },
  mounted() {
    // The browser scrolled to the anchor before this element existed.
    if (this.anchor && location.hash === `#${this.anchor}`) this.$el.scrollIntoView({ block: "center" });
  },
  methods: {
    change(event) {
      this.value = event.target.value;
      this.$emit("changed", this.value);
    },
  },
  render() {
    const h = Vue.h;
    const shared = { "aria-label": this.label, value: this.value };
    if (this.kind === "select") {
      const options = this.choices.map(([value, text]) => h("option", { value, key: value }, text));
      return h("select", { ...shared, class: "field", onChange: this.change }, options);
    }
    const bounds = this.kind === "number" ? { min: this.least, max: this.most, inputmode: "numeric" } : {};
    return h("input", {
      ...shared, ...bounds, class: "field", type: this.kind, placeholder: this.hint,
      autocomplete: "off", spellcheck: "false", onInput: this.change,
    });
  },
};
