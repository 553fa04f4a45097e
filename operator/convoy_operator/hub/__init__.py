"""Where node agents meet the leading operator: certificates, streams, liveness."""
