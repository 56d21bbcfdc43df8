id = nil
