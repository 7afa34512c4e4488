package server

import (
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// A result can be read repeatedly, in either encoding. One with a number that is not finite is a failure in both.
func TestResultsAreReadInBothEncodings(t *testing.T) {
	t.Parallel()
	s, h := newHooked(t, Config{})
	defer s.Close()
	_, m := newModel(t, s)
	submit := func(seq int) any {
		return call(t, s, "POST", wire.Forward, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"forward_input":{"loss_fn":"cross_entropy","data":[
			{"model_input":{"chunks":[{"tokens":[1,2]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3]}}}]}}`, m, seq), 200)["request_id"]
	}
	read := func(id any, accept string) (media, body string) {
		req := httptest.NewRequestWithContext(t.Context(), "POST", wire.Prefix+wire.RetrieveFuture, strings.NewReader(fmt.Sprintf(`{"request_id":%q}`, id)))
		req.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		return rec.Header().Get("Content-Type"), rec.Body.String()
	}
	id := submit(1)
	params := tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.CrossEntropy}, Data: []tinker.Datum{{Input: []int32{1, 2}, Targets: []int32{2, 3}}}}
	var want [2]tinker.ForwardResult
	for round := range 2 {
		_, text := read(id, wire.JSONType)
		fromJSON, err := wire.DecodeForwardResult(wire.JSONType, []byte(text), params)
		if err != nil {
			t.Fatal(err)
		}
		media, binary := read(id, wire.ProtobufType)
		fromProtobuf, err := wire.DecodeForwardResult(wire.ProtobufType, []byte(binary), params)
		if err != nil || media != wire.ProtobufType {
			t.Fatal(media, err)
		}
		got := [2]tinker.ForwardResult{fromJSON, fromProtobuf}
		if round == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got[0].Logprobs) != 1 {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	}
	for seq, spoil := range []func(res *tinker.ForwardResult){
		func(res *tinker.ForwardResult) { res.Logprobs[0][1] = float32(math.NaN()) },
		func(res *tinker.ForwardResult) { res.Losses[0][0] = float32(math.Inf(1)) },
	} {
		h.forward = spoil
		id := submit(seq + 2)
		for _, accept := range []string{wire.JSONType, wire.ProtobufType} {
			media, body := read(id, accept)
			if media != wire.JSONType || !strings.Contains(body, "not finite") || !strings.Contains(body, `"category":"server"`) {
				t.Errorf("%s: %s %s", accept, media, body)
			}
		}
	}
}
