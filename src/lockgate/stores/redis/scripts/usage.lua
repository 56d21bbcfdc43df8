
if not reading then
  return false
end
if charges then
  local requests, last = 1, now
  if usage then
    requests, last = read('<i8i8', usage)
    requests = requests + 1
    if last < now then
      last = now
    end
  end
  usage = write('<i8i8', requests, last)
  call('HSET', KEYS[1], ARGV[2], usage)
end
return reading .. heads .. (usage or write('<i8i8', 0, 0))
