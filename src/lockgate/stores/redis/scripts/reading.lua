return reading
