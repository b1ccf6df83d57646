package queue

// heap is a binary heap of pods that know their place in it.
type heap struct {
	less  func(a, b *item) bool
	items []*item
}

func (h *heap) push(i *item) {
	i.index = len(h.items)
	h.items = append(h.items, i)
	h.up(i.index)
}

// peek returns the first pod, nil when there is none.
func (h *heap) peek() *item {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) pop() *item {
	i := h.peek()
	if i != nil {
		h.remove(i)
	}
	return i
}

func (h *heap) remove(i *item) {
	at, last := i.index, len(h.items)-1
	h.swap(at, last)
	h.items[last] = nil
	h.items = h.items[:last]
	if at < last {
		h.fix(at)
	}
}

// fix restores the order after the pod at that place has changed.
func (h *heap) fix(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *heap) swap(a, b int) {
	h.items[a], h.items[b] = h.items[b], h.items[a]
	h.items[a].index, h.items[b].index = a, b
}

func (h *heap) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !h.less(h.items[at], h.items[parent]) {
			return
		}
		h.swap(at, parent)
		at = parent
	}
}

func (h *heap) down(at int) bool {
	moved := false
	for {
		first := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.items); child++ {
			if h.less(h.items[child], h.items[first]) {
				first = child
			}
		}
		if first == at {
			return moved
		}
		h.swap(at, first)
		at, moved = first, true
	}
}
