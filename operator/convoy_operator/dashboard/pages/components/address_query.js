// Keeps in the address what the reader has asked to see, so that it can be loaded anew, and sent to others.
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
