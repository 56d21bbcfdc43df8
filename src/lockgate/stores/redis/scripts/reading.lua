
return reading and reading .. heads
