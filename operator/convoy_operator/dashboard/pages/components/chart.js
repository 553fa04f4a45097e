// ECharts from NiceGUI, without a Vue template: the Content-Security-Policy forbids compiling it in the browser.
import { echarts } from "nicegui-echart";

export default {
  props: { options: Object, label: String },
  mounted() {
    this.chart = echarts.init(this.$el, null, { renderer: "canvas" });
    this.watcher = new ResizeObserver(() => this.chart.resize());
    this.watcher.observe(this.$el);
    this.draw();
  },
  beforeUnmount() {
    this.watcher.disconnect();
    this.chart.dispose();
  },
  methods: {
    draw() {
      this.chart?.setOption(this.options);
    },
  },
  render() {
    return Vue.h("div", { class: "chart", role: "img", "aria-label": this.label });
  },
};
