"""Configuration that hands plain domain objects to assets. What belongs here: ``ConfigurableResource`` classes only."""
