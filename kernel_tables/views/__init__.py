"""Views of an attributed capture: tables, findings about its completeness, a timeline."""
