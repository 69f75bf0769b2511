import { defineConfig } from "vitest/config";

export default defineConfig({
  // Golden vectors are beside the Python tests, which hold them too.
  server: { fs: { allow: ["..", "."] } },
  test: { environment: "jsdom", include: ["tests/**/*.test.ts"] },
});
