import { expect, it } from "vitest";
import { LivePicture } from "../src/graph/live_picture";
import { column } from "./pictures";

it("knows the opened groups around a point, outer ones first", () => {
  const picture = column(["model", "relu"], { model: { kind: "cluster", openable: true } });
  const live = new LivePicture(picture);
  expect(live.groupsAt({ x: 10, y: 10 })).toEqual(["model"]);
  expect(live.groupsAt({ x: 10, y: 80 })).toEqual([]);
});
