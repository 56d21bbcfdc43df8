-- Count the usage of a key if the request was charged. Takes and leaves usage.
if charged then
  local requests, last = 0, now
  if usage then
    requests, last = read('<i8i8', usage)
    if last < now then
      last = now
    end
  end
  usage = write('<i8i8', requests + 1, last)
  call('HSET', KEYS[1], ARGV[2], usage)
end
