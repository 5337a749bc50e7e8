package embedded

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
)

func TestMeasure(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newTrio(t, "n1", "n2", "n3")
			nodes := map[string]*exec.Cmd{}
			begin := time.Now()
			for name := range c.peers {
				nodes[name] = c.spawn(name)
			}
			js := stream(t, c.worker("worker"), 3)
			eventually(t, "the first write", write(js, "one"))
			fmt.Println("COLD", time.Since(begin).Round(10*time.Millisecond))
			for k := range 2 {
				name := leader(t, js)
				nodes[name].Process.Kill()
				fmt.Println("KILL", eventually(t, "kill", write(js, name)).Round(10*time.Millisecond))
				nodes[name].Wait()
				nodes[name] = c.spawn(name)
				c.caughtUp(js, 2+k)
			}
		})
	}
}
