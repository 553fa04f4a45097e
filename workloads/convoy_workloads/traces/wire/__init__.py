"""The file format of Chakra execution traces: messages, bounded reader, atomic writer."""
