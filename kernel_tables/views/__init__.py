"""What is made of an attributed capture: tables, findings about its completeness, a timeline."""
