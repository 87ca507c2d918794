"""Tables as versions over a store: written, committed, planned and read. No pandas here."""
