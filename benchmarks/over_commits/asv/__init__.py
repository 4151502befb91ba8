"""The recorded counts and ratios as airspeed velocity reads them."""
