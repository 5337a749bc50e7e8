package lending

import (
	"fmt"
	"testing"
	"time"
)

func TestZ(t *testing.T) {
	n := map[string]int{}
	from := time.Now()
	i := uint64(0)
	for ; i < uint64(*hunts); i++ {
		c := RandomCase(*huntSeed + i)
		b, err := c.Try(t.Context())
		if b != "" || err != nil {
			k := b
			if len(k) > 14 {
				k = k[:14]
			}
			n[k]++
			if n[k] < 6 {
				fmt.Println(c.Seed, c.Sites, b, err)
			}
		}
	}
	fmt.Println(n, i, time.Since(from))
}
