"""Tests of Convoy on other minor versions of Kubernetes, and the page that lists their results."""
