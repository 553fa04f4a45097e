// Keeps the reader's filters in the address, so that the page can be reloaded and shared.
export default {
  inheritAttrs: false,
  props: { query: String },
  watch: {
    query(now) {
      history.replaceState(history.state, "", location.pathname + (now && `?${now}`) + location.hash);
    },
  },
  render: () => null,
};
